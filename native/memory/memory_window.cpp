// Memory windows: allocating, binding, invalidating (IBTA Vol 1, 10.6.7; o10-36 to o10-39).

#include <algorithm>

#include "memory/access_flags.hpp"
#include "memory/memory_table.hpp"

namespace softhca {
namespace {

// LOCAL_WRITE says nothing for a window, and is tolerated as other devices do.
constexpr std::uint32_t kWindowAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                        kAccessRemoteAtomic | kAccessZeroBased |
                                        kAccessOptionalRange;

}  // namespace

Result<std::uint32_t> MemoryTable::alloc_window(std::uint32_t pd, MwType type) {
  if (type != MwType::TYPE_1 && type != MwType::TYPE_2) {
    return refuse(EINVAL, "mw_type", static_cast<std::uint64_t>(type), "must be TYPE_1 or TYPE_2");
  }
  if (windows_ >= limits_.max_windows) {
    return refuse(ENOMEM, "max_mw", limits_.max_windows, "windows are allocated already");
  }
  KeySlot& slot = take_slot(type == MwType::TYPE_1 ? KeyKind::WINDOW_1 : KeyKind::WINDOW_2);
  slot.region.pd = pd;
  slot.state = KeyState::FREE;
  ++windows_;
  return slot.handle;
}

Status MemoryTable::dealloc_window(std::uint32_t handle) {
  KeySlot* slot = object_of(handle);
  if (slot == nullptr || !slot->is_window()) {
    return refuse(EINVAL, "mw", handle, "no such memory window");
  }
  unbind(*slot);
  --windows_;
  free_slot(*slot);
  return Status::success();
}

void MemoryTable::unbind(KeySlot& window) {
  tell_unnamed(window);
  if (window.state == KeyState::VALID) {
    revoke(window);
    --slots_[window.under].windows;
    bound_type_2_ -= window.kind == KeyKind::WINDOW_2 ? 1 : 0;
  }
  window.state = KeyState::FREE;
  window.under = window.qpn = 0;
  window.region = {window.region.pd, 0, 0, 0, 0};
}

// Numbers are IBTA's compliance statements.
Reason MemoryTable::check_bind(const Accessor& who, const KeySlot& window, std::uint32_t key,
                               const BindInfo& info, const KeySlot* region) const {
  const bool type_1 = window.kind == KeyKind::WINDOW_1;
  if (window.region.pd != who.pd) {  // C10-72.
    return Reason::OTHER_PD;
  }
  if ((window.handle ^ key) >> 8 != 0) {
    return Reason::KEY_INDEX;
  }
  if ((info.access & ~kWindowAccess) != 0) {
    return Reason::BAD_ACCESS;
  }
  if (type_1 && (info.access & kAccessZeroBased) != 0) {  // o10-36.2.2.
    return Reason::ZERO_BASED_WINDOW;
  }
  if (!type_1 && window.state != KeyState::FREE) {  // o10-37.2.30.
    return Reason::NOT_FREE;
  }
  if (!type_1 && info.length == 0) {  // o10-37.2.40.
    return Reason::EMPTY_BIND;
  }
  if (type_1 && info.length == 0) {
    return Reason::NONE;
  }
  if (region == nullptr || region->is_window()) {
    return Reason::UNKNOWN_KEY;
  }
  if (region->region.pd != window.region.pd) {  // C10-72.
    return Reason::OTHER_PD;
  }
  if ((region->region.access & kAccessZeroBased) != 0) {
    return Reason::ZERO_BASED_REGION;
  }
  if (region->state == KeyState::VALID && (region->region.access & kAccessMwBind) == 0) {
    return Reason::NO_BIND_RIGHT;  // C10-73.
  }
  // The region needs no remote right of its own; writing through a window is writing by the owner's
  // leave, who must be allowed to write himself (C10-74).
  if (region->state == KeyState::VALID &&
      (info.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0 &&
      (region->region.access & kAccessLocalWrite) == 0) {
    return Reason::WINDOW_WRITES;
  }
  return check_range(*region, info.address, info.length, 0);  // C10-75.
}

Result<std::uint32_t> MemoryTable::next_bind_key(std::uint32_t handle) const {
  const KeySlot* window = find_object(handle);
  if (window == nullptr || !window->is_window()) {
    return refuse(EINVAL, "mw", handle, "no such memory window");
  }
  if (window->kind != KeyKind::WINDOW_1) {
    return refuse(EINVAL, "mw", handle,
                  "is of type 2: bind it by a BindMw work request (ibv_bind_mw is for type 1)");
  }
  return (handle & ~0xffu) | static_cast<std::uint8_t>(window->posted_tag + 1);
}

AccessFault MemoryTable::bind_window(const Accessor& who, std::uint32_t handle, MwType type,
                                     std::uint32_t key, const BindInfo& info) {
  KeySlot* window = object_of(handle);
  const KeyKind kind = type == MwType::TYPE_1 ? KeyKind::WINDOW_1 : KeyKind::WINDOW_2;
  if (window == nullptr || window->kind != kind) {
    return {Reason::WRONG_WINDOW, key, info.address, info.length};
  }
  const Reason reason = check_bind(who, *window, key, info, slot_of(info.mr));
  if (reason != Reason::NONE) {
    // What the window was bound to before, it stays bound to.
    const bool about_region = reason == Reason::UNKNOWN_KEY || reason == Reason::KEY_NOT_VALID ||
                              reason == Reason::OUT_OF_BOUNDS;
    return {reason, about_region ? info.mr : key, info.address, info.length};
  }
  unbind(*window);
  window->tag = static_cast<std::uint8_t>(key);
  if (info.length == 0) {
    return {};
  }
  const bool zero_based = (info.access & kAccessZeroBased) != 0;
  window->region.address = info.address;
  window->region.iova = zero_based ? 0 : info.address;
  window->region.length = info.length;
  window->region.access = info.access;
  window->state = KeyState::VALID;
  window->under = info.mr >> 8;
  // By one of type 1, every queue pair of the domain reaches the memory.
  if (window->kind == KeyKind::WINDOW_2) {
    window->qpn = who.qpn;
    ++bound_type_2_;
  }
  ++slots_[window->under].windows;
  tell_named(*window);
  return {};
}

AccessFault MemoryTable::invalidate(const Accessor& who, std::uint32_t key, bool by_peer) {
  KeySlot* slot = slot_of(key);
  Reason reason = Reason::NONE;
  if (slot == nullptr) {
    reason = Reason::UNKNOWN_KEY;
  } else if (slot->kind == KeyKind::REGION || slot->kind == KeyKind::WINDOW_1) {
    reason = by_peer ? Reason::REFUSED_INVALIDATE : Reason::NOT_INVALIDATABLE;
  } else if (slot->region.pd != who.pd) {
    reason = Reason::OTHER_PD;
  } else if (slot->kind == KeyKind::WINDOW_2) {
    reason = slot->state != KeyState::VALID ? Reason::KEY_NOT_VALID
             : slot->qpn != who.qpn         ? Reason::OTHER_QP
                                            : Reason::NONE;
  } else if (slot->windows != 0) {
    reason = Reason::WINDOWS_BOUND;
  } else if (by_peer && slot->state != KeyState::VALID) {
    reason = Reason::KEY_NOT_VALID;
  } else if (by_peer && (slot->region.access & kRemoteRights) == 0) {
    // A peer that has no right to the key may not take it away either.
    reason = Reason::MISSING_RIGHT;
  }
  if (reason != Reason::NONE) {
    return {reason, key, 0, 0};
  }
  if (slot->kind == KeyKind::WINDOW_2) {
    unbind(*slot);
  } else {
    tell_unnamed(*slot);
    revoke(*slot);
    slot->state = KeyState::FREE;
  }
  return {};
}

std::uint32_t MemoryTable::windows_of(std::uint32_t qpn) const {
  if (bound_type_2_ == 0) {
    return 0;
  }
  return static_cast<std::uint32_t>(std::ranges::count_if(slots_, [=](const KeySlot& slot) {
    return slot.live && slot.kind == KeyKind::WINDOW_2 && slot.state == KeyState::VALID &&
           slot.qpn == qpn;
  }));
}

void MemoryTable::release_windows_of(std::uint32_t qpn) {
  if (bound_type_2_ == 0) {
    return;
  }
  for (KeySlot& slot : slots_) {
    if (slot.live && slot.kind == KeyKind::WINDOW_2 && slot.qpn == qpn) {
      unbind(slot);
    }
  }
}

}  // namespace softhca
