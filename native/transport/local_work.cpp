// Work requests that change keys of this adapter and send nothing: BIND_MW, LOCAL_INV, REG_MR. They
// run when their turn in the send queue comes, and complete in order (IBTA Vol 1, 10.8.3.3).

#include "transport/queue_pair.hpp"
#include "transport/requester.hpp"

namespace softhca {

// Executes what stands next in the queue, as far as it is of this kind and may run now.
void Requester::run_local_work() {
  while (current_ != qp_.sq.tail() && qp_.sq.at(current_).is_local()) {
    SendWqe& wqe = qp_.sq.at(current_);
    if (!wqe.started) {
      if ((failure_.set && current_ >= failure_.index) || !may_run_local(wqe)) {
        return;
      }
      if (qp_.init.type == QpType::UD) {
        fail(current_, WcStatus::LOC_QP_OP_ERR, {Reason::UNSUPPORTED, 0, 0, 0}, false);
        return;
      }
      const AccessFault fault = execute_local(wqe);
      if (!fault.ok()) {
        fail(current_, WcStatus::MW_BIND_ERR, fault, false);
        return;
      }
      // It lies between two packets, so that going back to either side finds the right entry.
      wqe.started = true;
      wqe.first_psn = next_psn_;
      wqe.psn_count = 0;
    }
    ++current_;
    current_packet_ = 0;
    complete_local();
  }
}

// A fence waits for READs and atomics alone. An invalidation waits besides for what is sent from
// memory and might have to be sent again; but not for a READ without a fence, whose answer then
// finds its memory taken away.
bool Requester::may_run_local(const SendWqe& wqe) const {
  if (qp_.state() == QpState::SQD || (wqe.fence() && !reads_.empty())) {
    return false;
  }
  if (wqe.opcode != WrOpcode::LOCAL_INV) {
    return true;
  }
  for (std::uint64_t index = qp_.sq.oldest(); index != current_; ++index) {
    const SendWqe& before = qp_.sq.at(index);
    if (!before.is_local() && !before.is_answered()) {
      return false;
    }
  }
  return true;
}

AccessFault Requester::execute_local(const SendWqe& wqe) {
  MemoryTable& memory = qp_.services.memory;
  const Accessor who(qp_.init.pd, qp_.qpn);
  if (wqe.opcode == WrOpcode::LOCAL_INV) {
    return memory.invalidate(who, wqe.invalidate_rkey, false);
  }
  if (wqe.opcode == WrOpcode::REG_MR) {
    return memory.register_fast_region(who, wqe.memory.object, wqe.memory.key,
                                       wqe.memory.bind.access);
  }
  return memory.bind_window(who, wqe.memory.object, wqe.memory.type, wqe.memory.key,
                            wqe.memory.bind);
}

// What has run and has nothing unfinished before it is complete.
void Requester::complete_local() {
  while (!qp_.sq.empty()) {
    const SendWqe& oldest = qp_.sq.at(qp_.sq.oldest());
    if (!oldest.started || !oldest.is_local()) {
      break;
    }
    qp_.complete_send(WcStatus::SUCCESS, {}, false);
  }
  qp_.check_drained();
}

}  // namespace softhca
