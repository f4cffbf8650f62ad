"""Bugs to plant in the transport, one at a time: the seeds of the long check must find each."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """A bug: what is replaced by what, once, in a file of native/."""

    name: str
    file: str
    right: str
    wrong: str


BUGS = [
    Bug(
        "an ACK without the write",
        "transport/responder.cpp",
        "  if (payload_bytes != 0) {\n    begin_part(packet);\n",
        "  if (payload_bytes != 0 && !packet.bth.ack_request) {\n    begin_part(packet);\n",
    ),
    Bug(
        "atomics are executed again",
        "transport/responder_reply.cpp",
        "  resources_[index].replying = true;\n  Reply reply;\n",
        "  resources_[index].replying = run_atomic(resources_[index]).ok();\n  Reply reply;\n",
    ),
    Bug(
        "a NAK storm",
        "transport/responder_checks.cpp",
        "  if (!nak_outstanding_) {",
        "  if (ahead > 0) {",
    ),
    Bug(
        "PSNs are compared without wrap",
        "wire/psn.hpp",
        "  return static_cast<std::int32_t>((to - from) << 8) >> 8;",
        "  return static_cast<std::int32_t>(to) - static_cast<std::int32_t>(from);",
    ),
    Bug(
        "the RNR counter is not restored",
        "transport/completer.cpp",
        "  rnr_retries_left_ = qp_.attr.rnr_retry;\n",
        "",
    ),
    Bug(
        "the retry counter is not restored",
        "transport/completer.cpp",
        "  retries_left_ = qp_.attr.retry_cnt;\n  rnr",
        "  rnr",
    ),
    Bug(
        "a NAK fails the oldest request instead of its own",
        "transport/completer.cpp",
        "  if (!acknowledge_before(psn)) {\n    return;\n  }\n  const SendWqe& wqe",
        "  static_cast<void>(psn);\n  const SendWqe& wqe",
    ),
    Bug(
        "duplicate WRITEs are executed",
        "transport/responder_checks.cpp",
        "  if (ahead < 0) {",
        "  if (ahead < 0 && !packet.info->has(kWrite)) {",
    ),
    Bug(
        "duplicates are not acknowledged",
        "transport/responder_reply.cpp",
        "  } else if (packet.info->has(kSend | kWrite)) {\n    push",
        "  } else if (packet.info->has(kReadResponse)) {\n    push",
    ),
    Bug(
        "a READ response that skips others is taken",
        "transport/completer.cpp",
        "  if (psn != owed) {\n",
        "  if (psn_distance(psn, owed) > 0) {\n",
    ),
    Bug(
        "an ACK completes a READ that has no answer",
        "transport/completer.cpp",
        "  progress(skips ? owed : end_psn);",
        "  progress(end_psn);",
    ),
    Bug(
        "the RNR delay is ignored",
        "transport/completer.cpp",
        "  rnr_deadline_ns_ = qp_.services.time.now_ns() + rnr_delay_ns(timer_code);",
        "  rnr_deadline_ns_ = qp_.services.time.now_ns() + timer_code;",
    ),
    Bug(
        "a fence does not wait",
        "transport/requester.cpp",
        "(wqe.fence() && !reads_.empty())",
        "(wqe.fence() && reads_.size() > 1000)",
    ),
    Bug(
        "more READs than the responder has resources for",
        "transport/requester.cpp",
        "  if (wqe.is_answered() && reads_.size() >= reads_allowed) {",
        "  if (wqe.is_answered() && reads_.size() > reads_allowed) {",
    ),
    Bug(
        "a sequence NAK acknowledges what it complains of",
        "transport/completer.cpp",
        "void Requester::on_sequence_nak(std::uint32_t psn) {\n  if (!acknowledge_before(psn)) {",
        "void Requester::on_sequence_nak(std::uint32_t psn) {\n  if (!acknowledge_before(psn_add("
        "psn, 1))) {",
    ),
    Bug(
        "sequence NAKs spend no retry",
        "transport/completer.cpp",
        "    round_trip_.forget();\n    if (may_retry()) {\n      repeat_answered(psn);",
        "    round_trip_.forget();\n    if (true) {\n      repeat_answered(psn);",
    ),
    Bug(
        "errors of unsignaled requests are kept quiet",
        "transport/queue_pair.cpp",
        "  const bool reported = failed || init.sq_sig_all",
        "  const bool reported = init.sq_sig_all",
    ),
    Bug(
        "receives are not flushed",
        "transport/queue_pair.cpp",
        "  requester.flush();\n  responder.flush();\n",
        "  requester.flush();\n",
    ),
    Bug(
        "the length of the last packet for that of the message",
        "transport/responder.cpp",
        "  completion.byte_len = message_bytes_;\n  completion.qpn",
        "  completion.byte_len = static_cast<std::uint32_t>(packet.payload.size());\n"
        "  completion.qpn",
    ),
    Bug(
        "a READ uses up one PSN",
        "transport/responder.cpp",
        "    psns = resources_[replies_.back().resource].psn_count;",
        "    psns = 1;",
    ),
    Bug(
        "a wrong ICRC is accepted",
        "adapter/adapter.cpp",
        ": !icrc.good) {",
        ": !icrc.good && datagram.size() < 24) {",
    ),
    Bug(
        "an atomic is answered with the result of another",
        "transport/responder_reply.cpp",
        "  packet.atomic_original = resource.original;",
        "  packet.atomic_original = resources_.front().original;",
    ),
    Bug(
        "the third packet of a WRITE lands on the second",
        "transport/responder.cpp",
        "  write_address_ += payload_bytes;",
        "  write_address_ += packet.info->has(kFirst) ? payload_bytes : 0;",
    ),
    Bug(
        "bounds are checked one byte too late",
        "memory/memory_table.hpp",
        "           length <= region.length - (address - region.iova);",
        "           length <= region.length - (address - region.iova) + 1;",
    ),
    Bug(
        "READs need no right",
        "transport/responder_checks.cpp",
        "    return kAccessRemoteRead;",
        "    return 0;",
    ),
    Bug(
        "a stale key still works",
        "memory/memory_table.cpp",
        "  return slot.live && slot.tag == (key & 0xff) ? &slot : nullptr;",
        "  return slot.live ? &slot : nullptr;",
    ),
    Bug(
        "slots of unsignaled requests are lost",
        "queue/send_queue.hpp",
        "    if (made_completion) {\n      freed_ = oldest_;",
        "    if (made_completion) {\n      freed_ += 1;",
    ),
    Bug(
        "a responder resource answers for ever",
        "transport/responder_reply.cpp",
        "  replies_.pop_front();\n  resource.replying = false;\n  const bool confirms",
        "  replies_.pop_front();\n  const bool confirms",
    ),
    Bug(
        "flushed in the wrong order",
        "transport/queue_pair.cpp",
        "  completion.wr_id = wqe.wr_id;\n",
        "  completion.wr_id = status == WcStatus::WR_FLUSH_ERR ? sq.at(sq.tail() - 1).wr_id"
        " : wqe.wr_id;\n",
    ),
]
