// Queue pairs by number. A QPN is a slot and a generation, so that one is not used again at once
// (IBTA Vol 1, 12.9.8.4).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "transport/queue_pair.hpp"
#include "vocabulary/random.hpp"

namespace softhca {

class QpTable {
 public:
  static constexpr std::uint32_t kSlotBits = 14;
  static constexpr std::uint32_t kSlots = 1u << kSlotBits;

  QpTable(Random& random, std::uint32_t limit)
      : random_(random), limit_(limit < kSlots ? limit : kSlots) {}

  static constexpr std::uint32_t slot_of(std::uint32_t qpn) { return qpn & (kSlots - 1); }

  bool full() const { return live_ >= limit_; }

  // Precondition: not full. The number for the next insert().
  std::uint32_t reserve() {
    if (free_.size() <= kReuseAfter && slots_.size() < kSlots) {
      free_.push_front(static_cast<std::uint32_t>(slots_.size()));
      slots_.push_back({nullptr, static_cast<std::uint32_t>(random_.below(kGenerations))});
    }
    const std::uint32_t slot = free_.front();
    Slot& entry = slots_[slot];
    do {
      entry.generation = (entry.generation + 1) % kGenerations;
      // 0 and 1 are the special queue pairs, all ones is multicast.
    } while (number(slot, entry.generation) < 2 || number(slot, entry.generation) == 0xffffff);
    return number(slot, entry.generation);
  }
  QueuePair& insert(std::uint32_t qpn, std::unique_ptr<QueuePair> qp) {
    free_.pop_front();
    ++live_;
    Slot& entry = slots_[slot_of(qpn)];
    entry.qp = std::move(qp);
    return *entry.qp;
  }
  // Does not look into the queue pair: that may be far away in memory.
  QueuePair* find(std::uint32_t qpn) const {
    const std::uint32_t slot = slot_of(qpn);
    if (slot >= slots_.size()) return nullptr;
    const Slot& entry = slots_[slot];
    return number(slot, entry.generation) == qpn ? entry.qp.get() : nullptr;
  }
  void erase(std::uint32_t qpn) {
    const std::uint32_t slot = slot_of(qpn);
    slots_[slot].qp.reset();
    free_.push_back(slot);
    --live_;
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& entry : slots_) {
      if (entry.qp) {
        visit(*entry.qp);
      }
    }
  }

 private:
  struct Slot {
    std::unique_ptr<QueuePair> qp;
    std::uint32_t generation = 0;
  };
  static constexpr std::uint32_t kGenerations = 1u << (24 - kSlotBits);
  static constexpr std::size_t kReuseAfter = 64;

  static std::uint32_t number(std::uint32_t slot, std::uint32_t generation) {
    return generation << kSlotBits | slot;
  }

  Random& random_;
  std::uint32_t limit_;
  std::uint32_t live_ = 0;
  std::vector<Slot> slots_;
  std::deque<std::uint32_t> free_;
};

}  // namespace softhca
