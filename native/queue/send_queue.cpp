#include "queue/send_queue.hpp"

#include <algorithm>

namespace softhca {

void SendQueue::allocate(std::uint32_t capacity, std::uint32_t max_sge, std::uint32_t max_inline) {
  // Rings are never of size zero, so that indices can be reduced; a capacity of 0 is held by who
  // posts.
  const std::size_t slots = std::max<std::uint32_t>(capacity, 1);
  max_sge_ = std::max<std::uint32_t>(max_sge, 1);
  max_inline_ = max_inline;
  entries_.resize(slots);
  sges_.resize(slots * max_sge_);
  inline_.resize(slots * max_inline_);
}

}  // namespace softhca
