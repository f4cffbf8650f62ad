#include "queue/send_queue.hpp"

#include <algorithm>

namespace softhca {

void SendQueue::allocate(std::uint32_t capacity, std::uint32_t max_sge, std::uint32_t max_inline) {
  // A capacity of 0 is held by who posts.
  capacity_ = std::max<std::uint32_t>(capacity, 1);
  slots_ = RingSlots(capacity_);
  max_sge_ = std::max<std::uint32_t>(max_sge, 1);
  max_inline_ = max_inline;
  entries_.resize(slots_.count());
  sges_.resize(slots_.count() * max_sge_);
  inline_.resize(slots_.count() * max_inline_);
}

}  // namespace softhca
