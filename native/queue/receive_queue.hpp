// Posted receives: the ring of a receive queue or of a shared receive queue.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "queue/ring_slots.hpp"
#include "queue/work_request.hpp"
#include "queue/work_source.hpp"

namespace softhca {

// A receive taken off a ring, with its own copy of the scatter list, for as long as a message fills
// it.
struct TakenReceive {
  std::uint64_t wr_id = 0;
  std::uint64_t cqe = 0;  // See Completion.
  std::uint64_t capacity_bytes = 0;
  std::vector<Sge> sges;
};

class ReceiveRing {
 public:
  void allocate(std::uint32_t capacity, std::uint32_t max_sge);
  void reset();
  // Receives are then fetched one by one, when they are wanted.
  void feed_from(std::shared_ptr<ReceiveSource> source) { source_ = std::move(source); }
  ReceiveSource* source() const { return source_.get(); }

  bool full() const { return tail_ - head_ >= capacity_; }
  // Fetches from the source, if there is one.
  bool empty() { return head_ == tail_ && (source_ == nullptr || !fetch()); }
  std::uint32_t count() const {
    return static_cast<std::uint32_t>(tail_ - head_) + (source_ ? source_->count() : 0);
  }
  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t max_sge() const { return max_sge_; }

  // Preconditions: not full; at most max_sge entries.
  void push(std::uint64_t wr_id, std::span<const Sge> sges, std::uint64_t cqe = 0);
  // Precondition: not empty. Reuses the storage of `taken`.
  void pop(TakenReceive& taken);
  // Those that need not be fetched any more.
  std::uint64_t at_hand() const { return tail_ - head_; }
  // The next one to be taken, and taking it without its list. Precondition: not empty.
  std::span<const Sge> front_sges() const { return sges_behind(0); }
  // The one behind so many others. Precondition: it is at hand.
  std::span<const Sge> sges_behind(std::uint64_t others) const {
    const std::size_t slot = slots_.of(head_ + others);
    return {sges_.data() + slot * max_sge_, entries_[slot].sge_count};
  }
  // What to name it by, and taking so many of them. Precondition: they are at hand.
  struct Names {
    std::uint64_t wr_id = 0;
    std::uint64_t cqe = 0;
  };
  Names names_behind(std::uint64_t others) const {
    const Entry& entry = entries_[slots_.of(head_ + others)];
    return {entry.wr_id, entry.cqe};
  }
  void drop_front(std::uint64_t count) { head_ += count; }
  void pop_front(std::uint64_t& wr_id, std::uint64_t& cqe) {
    const Entry& entry = entries_[slots_.of(head_++)];
    wr_id = entry.wr_id;
    cqe = entry.cqe;
  }

 private:
  struct Entry {
    std::uint64_t wr_id = 0;
    std::uint64_t cqe = 0;
    std::uint32_t sge_count = 0;
  };
  bool fetch();

  std::shared_ptr<ReceiveSource> source_;
  RecvWr fetched_;
  std::vector<Entry> entries_;
  std::vector<Sge> sges_;
  RingSlots slots_;
  std::uint32_t capacity_ = 0;
  std::uint32_t max_sge_ = 0;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace softhca
