#include "queue/completion_queue.hpp"

#include <algorithm>
#include <utility>

namespace softhca {

CompletionQueue::Push CompletionQueue::push(const Completion& completion, CallTime& time) {
  if (overflowed_) {
    return Push::DISCARDED;
  }
  if (!add(completion)) {
    overflowed_ = true;
    return Push::OVERFLOW;
  }
  if (!fires(completion) || hold_back(completion, time)) {
    return Push::ADDED;
  }
  notify_now();
  return Push::ADDED_AND_NOTIFY;
}

bool CompletionQueue::add(const Completion& completion) {
  if (outlet_) {
    return outlet_->put(completion);
  }
  if (tail_ - head_ >= capacity_) {
    return false;
  }
  ring_[slots_.of(tail_++)] = completion;
  return true;
}

bool CompletionQueue::lead_to(std::shared_ptr<CompletionOutlet> outlet) {
  if (outlet_ && !outlet->continue_from(*outlet_)) {
    return false;
  }
  outlet_ = std::move(outlet);
  ring_ = {};
  head_ = tail_ = 0;
  return true;
}

bool CompletionQueue::fires(const Completion& completion) const {
  switch (arming_) {
    case Arming::NONE:
      return false;
    case Arming::SOLICITED:
      return completion.status != WcStatus::SUCCESS ||
             (completion.is_receive && completion.solicited);
    case Arming::ANY:
      return true;
  }
  return false;
}

bool CompletionQueue::hold_back(const Completion& completion, CallTime& time) {
  if (moderated_period_ns_ == 0 || completion.status != WcStatus::SUCCESS) {
    return false;
  }
  ++held_back_;
  if (moderated_count_ != 0 && held_back_ >= moderated_count_) {
    return false;
  }
  if (notify_deadline_ns_ == kNever) {
    notify_deadline_ns_ = time.now_ns() + moderated_period_ns_;
  }
  return true;
}

void CompletionQueue::moderate(std::uint32_t count, std::uint64_t period_ns) {
  moderated_count_ = count;
  moderated_period_ns_ = period_ns;
}

bool CompletionQueue::notify_now() {
  const bool was_armed = arming_ != Arming::NONE;
  arming_ = Arming::NONE;
  held_back_ = 0;
  notify_deadline_ns_ = kNever;
  return was_armed;
}

std::size_t CompletionQueue::poll(std::span<Completion> out) {
  std::size_t taken = 0;
  while (taken < out.size() && head_ != tail_) {
    out[taken++] = ring_[slots_.of(head_++)];
  }
  // An empty one begins anew, where its memory is in the nearest caches.
  if (taken > 0 && head_ == tail_) head_ = tail_ = 0;
  return taken;
}

void CompletionQueue::arm(bool solicited_only) {
  if (!solicited_only) {
    arming_ = Arming::ANY;
  } else if (arming_ == Arming::NONE) {
    arming_ = Arming::SOLICITED;
  }
}

void CompletionQueue::purge(std::uint32_t qpn) {
  std::uint64_t kept = head_;
  for (std::uint64_t at = head_; at != tail_; ++at) {
    const Completion entry = ring_[slots_.of(at)];
    if (entry.qpn != qpn) {
      ring_[slots_.of(kept++)] = entry;
    }
  }
  tail_ = kept;
}

bool CompletionQueue::resize(std::uint32_t capacity) {
  if (capacity < count()) {
    return false;
  }
  if (outlet_) {
    capacity_ = capacity;
    return true;
  }
  const RingSlots slots(capacity);
  std::vector<Completion> larger(slots.count());
  capacity_ = capacity;  // Not before there is memory for as many.
  const std::size_t kept = poll(larger);
  slots_ = slots;
  ring_.swap(larger);
  head_ = 0;
  tail_ = kept;
  return true;
}

}  // namespace softhca
