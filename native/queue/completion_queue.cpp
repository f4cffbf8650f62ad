#include "queue/completion_queue.hpp"

#include <algorithm>

namespace softhca {

CompletionQueue::Push CompletionQueue::push(const Completion& completion) {
  if (overflowed_) {
    return Push::DISCARDED;
  }
  if (tail_ - head_ >= ring_.size()) {
    overflowed_ = true;
    return Push::OVERFLOW;
  }
  ring_[tail_++ % ring_.size()] = completion;
  const bool fires =
      arming_ == Arming::ANY ||
      (arming_ == Arming::SOLICITED &&
       (completion.status != WcStatus::SUCCESS || (completion.is_receive && completion.solicited)));
  if (!fires) {
    return Push::ADDED;
  }
  arming_ = Arming::NONE;
  return Push::ADDED_AND_NOTIFY;
}

std::size_t CompletionQueue::poll(std::span<Completion> out) {
  std::size_t taken = 0;
  while (taken < out.size() && head_ != tail_) {
    out[taken++] = ring_[head_++ % ring_.size()];
  }
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
    const Completion entry = ring_[at % ring_.size()];
    if (entry.qpn != qpn) {
      ring_[kept++ % ring_.size()] = entry;
    }
  }
  tail_ = kept;
}

bool CompletionQueue::resize(std::uint32_t capacity) {
  if (capacity < count()) {
    return false;
  }
  std::vector<Completion> larger(capacity);
  const std::size_t kept = poll(larger);
  ring_.swap(larger);
  head_ = 0;
  tail_ = kept;
  return true;
}

}  // namespace softhca
