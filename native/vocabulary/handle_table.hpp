// Objects by small handles. A handle is a slot and a generation, so that one kept too long names
// nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace softhca {

// `GenerationBits` and the 20 bits of a slot are the width of a handle.
template <class T, unsigned GenerationBits = 12>
class HandleTable {
 public:
  explicit HandleTable(std::uint32_t limit) : limit_(limit) {}

  bool full() const { return live_ >= limit_; }
  std::uint32_t size() const { return live_; }

  // What the next insert() will return, for objects that must know it. Precondition: not full.
  std::uint32_t next() const {
    if (reuses()) {
      return handle_of(free_.front(), slots_[free_.front()].generation);
    }
    return handle_of(static_cast<std::uint32_t>(slots_.size()), 0);
  }

  // Precondition: not full.
  std::uint32_t insert(std::unique_ptr<T> object) {
    std::uint32_t slot;
    if (reuses()) {
      slot = free_.front();
      free_.pop_front();
    } else {
      slot = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
    }
    Slot& entry = slots_[slot];
    entry.object = std::move(object);
    ++live_;
    return handle_of(slot, entry.generation);
  }

  T* find(std::uint32_t handle) const {
    const std::uint32_t slot = (handle & kSlotMask) - 1;
    if ((handle & kSlotMask) == 0 || slot >= slots_.size()) {
      return nullptr;
    }
    const Slot& entry = slots_[slot];
    return handle_of(slot, entry.generation) == handle ? entry.object.get() : nullptr;
  }

  void erase(std::uint32_t handle) {
    if (find(handle) == nullptr) {
      return;
    }
    const std::uint32_t slot = (handle & kSlotMask) - 1;
    slots_[slot].object.reset();
    slots_[slot].generation = (slots_[slot].generation + 1) & kGenerationMask;
    free_.push_back(slot);
    --live_;
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& entry : slots_) {
      if (entry.object) {
        visit(*entry.object);
      }
    }
  }

 private:
  struct Slot {
    std::unique_ptr<T> object;
    std::uint32_t generation = 0;
  };
  static constexpr std::uint32_t kSlotBits = 20;
  static constexpr std::uint32_t kSlotMask = (1u << kSlotBits) - 1;
  static constexpr std::uint32_t kGenerationMask = (1u << GenerationBits) - 1;
  static constexpr std::size_t kReuseAfter = 64;

  // Slots are reused oldest first, and only when there is no fresh one or many wait.
  bool reuses() const {
    return free_.size() > kReuseAfter || (slots_.size() >= limit_ && !free_.empty());
  }
  static std::uint32_t handle_of(std::uint32_t slot, std::uint32_t generation) {
    return generation << kSlotBits | (slot + 1);
  }

  std::uint32_t limit_;
  std::uint32_t live_ = 0;
  std::vector<Slot> slots_;
  std::deque<std::uint32_t> free_;
};

}  // namespace softhca
