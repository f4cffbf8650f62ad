// Queues that lie in memory shared with whoever posts and polls: nobody hands their requests over.

#include <utility>

#include "adapter/state.hpp"

namespace softhca {
namespace {

Status no_such(const char* kind, std::uint32_t handle) {
  return refuse(EINVAL, kind, handle, "there is no such object");
}

// A request that cannot be posted still has its place in the queue, and completes in error there.
SendWr refused_request(std::uint64_t wr_id) {
  SendWr wr;
  wr.wr_id = wr_id;
  wr.send_flags = kSendSignaled;
  wr.refused = Reason::UNSUPPORTED;
  return wr;
}

// Programs know windows by their keys, any of them; the adapter by handle and type.
void name_window(const MemoryTable& memory, SendWr& wr) {
  const KeySlot* window = memory.find_index(wr.memory.object);
  wr.memory.object = window != nullptr ? window->handle : 0;
  wr.memory.type =
      window != nullptr && window->kind == KeyKind::WINDOW_1 ? MwType::TYPE_1 : MwType::TYPE_2;
}

}  // namespace

Status Adapter::feed_qp(std::uint32_t qpn, std::shared_ptr<SendSource> sends,
                        std::shared_ptr<ReceiveSource> receives) {
  QueuePair* qp = state_->qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  if (qp->init.type == QpType::XRC_SEND || qp->init.type == QpType::XRC_RECV) {
    return refuse(EOPNOTSUPP, "qp", qpn, "is an XRC queue pair, for which there is no layout");
  }
  if (receives && qp->queues.srq != nullptr) {
    return refuse(EINVAL, "qp", qpn, "receives from a shared receive queue");
  }
  if (qp->state() != QpState::RESET || qp->sq.source() != nullptr) {
    return refuse(EINVAL, "qp", qpn, "must be in RESET, and not be mapped yet");
  }
  qp->sq.feed_from(std::move(sends));
  qp->rq.feed_from(std::move(receives));
  return Status::success();
}

Status Adapter::feed_srq(std::uint32_t handle, std::shared_ptr<ReceiveSource> receives) {
  SharedReceiveQueue* srq = state_->srqs.find(handle);
  if (srq == nullptr) {
    return no_such("srq", handle);
  }
  if (srq->ring.count() != 0) {
    return refuse(EBUSY, "srq", srq->ring.count(), "receives are posted to it already");
  }
  srq->ring.feed_from(std::move(receives));
  return Status::success();
}

Status Adapter::lead_cq(std::uint32_t handle, std::shared_ptr<CompletionOutlet> outlet) {
  CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such("cq", handle);
  }
  if (cq->outlet() == nullptr && cq->count() != 0) {
    return refuse(EBUSY, "cq", cq->count(), "completions wait in it already");
  }
  if (!cq->lead_to(std::move(outlet))) {
    return refuse(EINVAL, "cqe", cq->count(), "completions wait, more than the new ring holds");
  }
  return Status::success();
}

Status Adapter::ring_doorbell(std::uint32_t qpn, std::uint64_t now_ns) {
  State& s = *state_;
  s.set_time(now_ns);
  QueuePair* qp = s.qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  if (qp->sq.source() == nullptr) {
    return refuse(EINVAL, "qp", qpn, "has no mapped send queue");
  }
  if (Status status = qp->check_post_state(); !status.ok()) {
    return status;
  }
  s.take_fed(*qp);
  s.settle_overflows();
  return Status::success();
}

void Adapter::State::take_fed(QueuePair& qp) {
  SendSource& source = *qp.sq.source();
  // No more than were there to begin with: who posts may go on for ever.
  std::uint32_t left = source.available();
  SendWr& wr = fetched;
  while (left-- > 0 && !qp.sq.full() && source.next(wr)) {
    if (wr.opcode == WrOpcode::BIND_MW) {
      name_window(memory_table, wr);
    }
    if (wr.refused != Reason::NONE || !post_to(qp, wr, 0).ok()) {
      // There is room, and nothing else is wrong with it.
      static_cast<void>(post_to(qp, refused_request(wr.wr_id), 0));
    }
  }
  if (qp.state() == QpState::ERR) {
    // Receives that were posted since it failed; nobody told of them.
    qp.responder.flush();
  }
}

}  // namespace softhca
