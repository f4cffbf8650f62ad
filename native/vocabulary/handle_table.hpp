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

  // Precondition: not full.
  std::uint32_t insert(std::unique_ptr<T> object) {
    std::uint32_t slot;
    // Slots are reused oldest first, and only when there is no fresh one or many wait.
    if (free_.size() > kReuseAfter || (slots_.size() >= limit_ && !free_.empty())) {
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

  // Fills a slot that was inserted empty.
  void place(std::uint32_t handle, std::unique_ptr<T> object) {
    slots_[(handle & kSlotMask) - 1].object = std::move(object);
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

  static std::uint32_t handle_of(std::uint32_t slot, std::uint32_t generation) {
    return generation << kSlotBits | (slot + 1);
  }

  std::uint32_t limit_;
  std::uint32_t live_ = 0;
  std::vector<Slot> slots_;
  std::deque<std::uint32_t> free_;
};

}  // namespace softhca
