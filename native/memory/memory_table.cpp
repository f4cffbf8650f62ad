#include "memory/memory_table.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "memory/access_flags.hpp"

namespace softhca {
namespace {

// A key comes back when its slot has been taken 256 times. Dead slots rest until there are so many
// of them, and the one that is taken is among the oldest, so that a key that somebody kept too long
// names nothing for a quarter of a million registrations.
constexpr std::size_t kRestingSlots = 1024;
constexpr std::size_t kOldestSlots = 16;

}  // namespace

MemoryTable::MemoryTable(AddressSpace& space, Random& random, const MemoryLimits& limits)
    : space_(space), random_(random), limits_(limits), slots_(1), plain_(1) {
  // Registering asks the kernel for no memory until there are many.
  slots_.reserve(kRestingSlots + 2 * kOldestSlots);
  plain_.reserve(kRestingSlots + 2 * kOldestSlots);
}

Result<std::uint32_t> MemoryTable::register_region(const RegionRequest& request) {
  if (Status status = check_region(request, limits_.max_region_bytes); !status.ok()) {
    return status;
  }
  if (regions_ >= limits_.max_regions) {
    return refuse(ENOMEM, "mr", limits_.max_regions, "max_mr regions are registered already");
  }
  KeySlot& slot = take_slot(KeyKind::REGION);
  slot.region = request;
  note_plain(slot);
  ++regions_;
  tell_named(slot);
  return slot.handle;
}

void MemoryTable::tell_named(const KeySlot& slot) const {
  if (observer != nullptr) {
    const bool is_window = slot.is_window();
    observer->named({key_of(slot), slot.region.iova, slot.region.length, slot.region.access,
                     slot.region.pd, slot.qpn, is_window,
                     is_window ? key_of(slots_[slot.under]) : 0,
                     is_window ? slot.region.address : 0});
  }
}

void MemoryTable::tell_unnamed(const KeySlot& slot) const {
  if (observer != nullptr && slot.state == KeyState::VALID) {
    observer->unnamed(key_of(slot));
  }
}

KeySlot& MemoryTable::take_slot(KeyKind kind) {
  std::uint32_t index = 0;
  std::uint8_t tag = 0;
  if (free_.size() > kRestingSlots || slots_.size() > limits_.max_regions + limits_.max_windows) {
    std::swap(free_.front(), free_[random_.below(std::min(free_.size(), kOldestSlots))]);
    index = free_.front();
    free_.pop_front();
    tag = static_cast<std::uint8_t>(slots_[index].tag + 1);
  } else {
    index = static_cast<std::uint32_t>(slots_.size());
    plain_.resize(slots_.size() + 1);  // First: there may be no memory for the other.
    slots_.emplace_back();
    tag = static_cast<std::uint8_t>(random_.next());
  }
  KeySlot& slot = slots_[index];
  // Nor may a handle name another object than before.
  tag = static_cast<std::uint8_t>(tag + (slot.handle == (index << 8 | tag) ? 1 : 0));
  slot = {};
  slot.tag = slot.posted_tag = tag;
  slot.handle = index << 8 | tag;
  slot.live = true;
  slot.kind = kind;
  return slot;
}

void MemoryTable::free_slot(KeySlot& slot) {
  slot.live = false;
  slot.pieces = {};
  slot.mapped_pieces = {};
  slot.region.watched.reset();
  slot.region.space.reset();
  note_plain(slot);
  free_.push_back(slot.handle >> 8);
}

void MemoryTable::note_plain(const KeySlot& slot) {
  const RegionRequest& region = slot.region;
  PlainRegion& plain = plain_[slot.handle >> 8];
  plain = {};
  if (!slot.live || slot.kind != KeyKind::REGION || region.watched || region.space ||
      !space_.is_direct()) {
    return;
  }
  plain = {region.iova, region.length, region.address, key_of(slot), region.pd, region.access};
}

Status MemoryTable::deregister_region(std::uint32_t handle) {
  KeySlot* slot = object_of(handle);
  if (slot == nullptr || slot->is_window()) {
    return refuse(EINVAL, "mr", handle, "no such memory region");
  }
  if (slot->windows != 0) {
    return refuse(EBUSY, "mr", slot->windows, "memory windows are bound to the region");
  }
  --regions_;
  tell_unnamed(*slot);
  revoke(*slot);
  free_slot(*slot);
  return Status::success();
}

const RegionRequest* MemoryTable::find(std::uint32_t key) const {
  const KeySlot* slot = slot_of(key);
  return slot == nullptr ? nullptr : &slot->region;
}

const KeySlot* MemoryTable::slot_of(std::uint32_t key) const {
  const std::uint32_t index = key >> 8;
  if (index == 0 || index >= slots_.size()) {
    return nullptr;
  }
  const KeySlot& slot = slots_[index];
  return slot.live && slot.tag == (key & 0xff) ? &slot : nullptr;
}

const KeySlot* MemoryTable::find_object(std::uint32_t handle) const {
  const KeySlot* slot = find_index(handle);
  return slot != nullptr && slot->handle == handle ? slot : nullptr;
}

const KeySlot* MemoryTable::find_index(std::uint32_t key) const {
  const std::uint32_t index = key >> 8;
  if (index == 0 || index >= slots_.size()) {
    return nullptr;
  }
  return slots_[index].live ? &slots_[index] : nullptr;
}

}  // namespace softhca
