// Posted receives: the ring of a receive queue or of a shared receive queue.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "queue/work_request.hpp"

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
  void reset() { head_ = tail_ = 0; }

  bool full() const { return tail_ - head_ >= capacity_; }
  bool empty() const { return head_ == tail_; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(tail_ - head_); }
  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t max_sge() const { return max_sge_; }

  // Preconditions: not full; at most max_sge entries.
  void push(std::uint64_t wr_id, std::span<const Sge> sges, std::uint64_t cqe = 0);
  // Precondition: not empty. Reuses the storage of `taken`.
  void pop(TakenReceive& taken);

 private:
  struct Entry {
    std::uint64_t wr_id = 0;
    std::uint64_t cqe = 0;
    std::uint32_t sge_count = 0;
  };
  std::vector<Entry> entries_;
  std::vector<Sge> sges_;
  std::uint32_t capacity_ = 0;
  std::uint32_t max_sge_ = 0;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace softhca
