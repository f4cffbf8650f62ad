// Completion queues: their verbs.

#include "adapter/state.hpp"

namespace softhca {
namespace {

Status no_such(std::uint32_t handle) {
  return refuse(EINVAL, "cq", handle, "there is no such object");
}

}  // namespace

Result<std::uint32_t> Adapter::create_cq(std::uint32_t cqe, bool timestamps) {
  const Limits& limits = state_->config.limits;
  if (cqe == 0 || cqe > limits.max_cqe) {
    return refuse(EINVAL, "cqe", cqe, "must be 1 to max_cqe", limits.max_cqe);
  }
  if (state_->cqs.full()) {
    return refuse(ENOMEM, "max_cq", limits.max_cq, "completion queues exist already");
  }
  return state_->cqs.insert(std::make_unique<CompletionQueue>(state_->cqs.next(), cqe, timestamps));
}

Status Adapter::destroy_cq(std::uint32_t handle) {
  const CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  if (cq->users != 0) {
    return refuse(EBUSY, "cq", cq->users, "still has objects that use it");
  }
  state_->held_back.erase({cq->notify_deadline_ns(), handle});
  std::erase_if(state_->completion_events,
                [handle](const CompletionEvent& event) { return event.cq == handle; });
  state_->cqs.erase(handle);
  state_->async_events.forget_cq(handle);
  return Status::success();
}

Result<std::uint32_t> Adapter::cq_capacity(std::uint32_t handle) const {
  const CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  return cq->capacity();
}

Result<bool> Adapter::cq_overflowed(std::uint32_t handle) const {
  const CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  return cq->overflowed();
}

Status Adapter::overflow_cq(std::uint32_t handle) {
  CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  if (cq->overflow()) {
    state_->overflowed(*cq, cq->notify_now());
    state_->settle_overflows();
  }
  return Status::success();
}

Result<std::size_t> Adapter::poll_cq(std::uint32_t handle, std::span<Completion> out) {
  CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  return cq->poll(out);
}

Status Adapter::attach_cq(std::uint32_t handle, std::uint32_t channel) {
  CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  cq->channel = channel;
  return Status::success();
}

Status Adapter::resize_cq(std::uint32_t handle, std::uint32_t cqe) {
  CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  if (cqe == 0 || cqe > state_->config.limits.max_cqe) {
    return refuse(EINVAL, "cqe", cqe, "must be 1 to max_cqe", state_->config.limits.max_cqe);
  }
  if (!cq->resize(cqe)) {
    return refuse(EINVAL, "cqe", cqe, "is below the number of completions that wait");
  }
  return Status::success();
}

Status Adapter::moderate_cq(std::uint32_t handle, std::uint32_t count, std::uint64_t period_ns) {
  CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  if (count > 1 && period_ns == 0) {
    return refuse(EINVAL, "cq_period", 0,
                  "must not be 0 with cq_count above 1: the last event would never come");
  }
  const std::uint64_t held_ns = cq->notify_deadline_ns();
  state_->held_back.erase({held_ns, handle});
  cq->moderate(count, period_ns);
  // What is held back already was promised under the old rule, and goes at once.
  if (held_ns != kNever && cq->notify_now()) {
    state_->notify(*cq);
  }
  return Status::success();
}

Result<int> Adapter::req_notify_cq(std::uint32_t handle, std::uint32_t flags) {
  CompletionQueue* cq = state_->cqs.find(handle);
  if (cq == nullptr) {
    return no_such(handle);
  }
  const std::uint32_t kind = flags & ~kNotifyReportMissedEvents;
  if (kind != kNotifySolicited && kind != kNotifyNextComp) {
    return refuse(EINVAL, "flags", flags,
                  "must be one of SOLICITED (1) and NEXT_COMP (2), with or without "
                  "REPORT_MISSED_EVENTS (4)");
  }
  if (cq->overflowed() && cq->count() == 0) {
    return refuse(EIO, "cq", handle, "has overflowed: nothing comes any more");
  }
  cq->arm(kind == kNotifySolicited);
  return (flags & kNotifyReportMissedEvents) != 0 && cq->count() != 0 ? 1 : 0;
}

}  // namespace softhca
