#include "queue/receive_queue.hpp"

#include <algorithm>

namespace softhca {

void ReceiveRing::allocate(std::uint32_t capacity, std::uint32_t max_sge) {
  capacity_ = capacity;
  slots_ = RingSlots(capacity);
  max_sge_ = max_sge;
  entries_.resize(slots_.count());
  sges_.resize(slots_.count() * max_sge);
}

void ReceiveRing::reset() {
  head_ = tail_ = 0;
  if (source_) {
    source_->reset();
  }
}

bool ReceiveRing::fetch() {
  if (!source_->next(fetched_, max_sge_)) {
    return false;
  }
  push(fetched_.wr_id, fetched_.sges);
  return true;
}

void ReceiveRing::push(std::uint64_t wr_id, std::span<const Sge> sges, std::uint64_t cqe) {
  const std::size_t slot = slots_.of(tail_);
  entries_[slot] = {wr_id, cqe, static_cast<std::uint32_t>(sges.size())};
  Sge* const room = sges_.data() + slot * max_sge_;
  if (sges.size() == 1) {  // As most have.
    *room = sges.front();
  } else {
    std::ranges::copy(sges, room);
  }
  ++tail_;
}

void ReceiveRing::pop(TakenReceive& taken) {
  const std::size_t slot = slots_.of(head_);
  const Entry& entry = entries_[slot];
  taken.wr_id = entry.wr_id;
  taken.cqe = entry.cqe;
  taken.capacity_bytes = 0;
  taken.sges.clear();
  for (std::uint32_t at = 0; at < entry.sge_count; ++at) {
    const Sge& sge = sges_[slot * max_sge_ + at];
    taken.capacity_bytes += sge.length;
    taken.sges.push_back(sge);
  }
  ++head_;
}

}  // namespace softhca
