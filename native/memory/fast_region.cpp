// Regions whose key is made valid and invalid by work requests (IBTA Vol 1, 10.6.4.8), and changes
// of a registered region (11.2.8.7).

#include <algorithm>

#include "memory/access_flags.hpp"
#include "memory/memory_table.hpp"

namespace softhca {
namespace {

// Pages must follow each other without gaps: only the first piece may begin inside one, and only
// the last may end there.
Status check_pages(std::span<const Piece> pieces, std::uint64_t page_bytes,
                   std::uint32_t max_pages) {
  const std::uint64_t mask = page_bytes - 1;
  std::uint64_t pages = 0;
  for (std::size_t at = 0; at < pieces.size(); ++at) {
    const Piece& piece = pieces[at];
    const std::uint64_t end = piece.address + piece.length;
    if (at != 0 && (piece.address & mask) != 0) {
      return refuse(EINVAL, "sg", at, "may not begin inside a page, unless it is the first entry");
    }
    if (at + 1 != pieces.size() && (end & mask) != 0) {
      return refuse(EINVAL, "sg", at, "may not end inside a page, unless it is the last entry");
    }
    pages += (((end + mask) & ~mask) - (piece.address & ~mask)) / page_bytes;
  }
  if (pages > max_pages) {
    return refuse(EINVAL, "sg", pages, "are more pages than max_sg", max_pages);
  }
  return Status::success();
}

}  // namespace

Result<std::uint32_t> MemoryTable::alloc_fast_region(std::uint32_t pd, MrType type,
                                                     std::uint32_t max_pieces) {
  if (type != MrType::MEM_REG && type != MrType::SG_GAPS) {
    return refuse(EINVAL, "mr_type", static_cast<std::uint64_t>(type),
                  "must be MEM_REG or SG_GAPS");
  }
  if (regions_ >= limits_.max_regions) {
    return refuse(ENOMEM, "mr", limits_.max_regions, "max_mr regions are registered already");
  }
  KeySlot& slot = take_slot(KeyKind::FAST_REGION);
  slot.region.pd = pd;
  slot.state = KeyState::FREE;
  slot.max_pieces = max_pieces;
  slot.may_have_gaps = type == MrType::SG_GAPS;
  ++regions_;
  return slot.handle;
}

Status MemoryTable::map_fast_region(std::uint32_t handle, const FastMapping& mapping) {
  KeySlot* slot = object_of(handle);
  if (slot == nullptr || slot->kind != KeyKind::FAST_REGION) {
    return refuse(EINVAL, "mr", handle, "no such region for fast registration");
  }
  if (slot->state == KeyState::VALID) {
    return refuse(EBUSY, "mr", handle, "is still valid: invalidate it first");
  }
  if (mapping.page_bytes < 4096 || (mapping.page_bytes & (mapping.page_bytes - 1)) != 0) {
    return refuse(EINVAL, "page_size", mapping.page_bytes, "must be a power of two, 4096 at least");
  }
  std::vector<Piece> pieces;
  std::uint64_t length = 0;
  for (const auto& [address, bytes] : mapping.ranges) {
    if (wraps(address, bytes) || length + bytes < length) {
      return refuse(EINVAL, "sg", bytes, "must not wrap 2^64");
    }
    if (bytes != 0) {
      pieces.push_back({address, bytes, length});
      length += bytes;
    }
  }
  if (length == 0) {
    return refuse(EINVAL, "sg", 0, "must hold a byte at least");
  }
  if (length > limits_.max_region_bytes) {
    return refuse(EINVAL, "sg", length, "are more bytes than max_mr_size",
                  limits_.max_region_bytes);
  }
  const Status fits =
      slot->may_have_gaps
          ? (pieces.size() > slot->max_pieces
                 ? refuse(EINVAL, "sg", pieces.size(), "are more than max_sg", slot->max_pieces)
                 : Status::success())
          : check_pages(pieces, mapping.page_bytes, slot->max_pieces);
  if (!fits.ok()) {
    return fits;
  }
  const std::uint64_t iova = mapping.iova.value_or(pieces.front().address);
  if (wraps(iova, length)) {
    return refuse(EINVAL, "iova", iova, "the range must not wrap 2^64");
  }
  slot->mapped_pieces = std::move(pieces);
  slot->mapped_length = length;
  slot->mapped_iova = iova;
  slot->mapped_writable = mapping.writable;
  return Status::success();
}

AccessFault MemoryTable::register_fast_region(const Accessor& who, std::uint32_t handle,
                                              std::uint32_t key, std::uint32_t access) {
  KeySlot* slot = object_of(handle);
  Reason reason = Reason::NONE;
  constexpr std::uint32_t kWrites = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteAtomic;
  if (slot == nullptr || slot->kind != KeyKind::FAST_REGION) {
    reason = Reason::UNKNOWN_KEY;
  } else if (slot->region.pd != who.pd) {
    reason = Reason::OTHER_PD;
  } else if (slot->state != KeyState::FREE) {
    reason = Reason::NOT_FREE;
  } else if (((handle ^ key) >> 8) != 0) {
    reason = Reason::KEY_INDEX;
  } else if (slot->mapped_pieces.empty()) {
    reason = Reason::NOT_MAPPED;
  } else if (!check_access_flags(access).ok() ||
             (!slot->mapped_writable && (access & kWrites) != 0)) {
    reason = Reason::BAD_ACCESS;
  }
  if (reason != Reason::NONE) {
    return {reason, key, 0, 0};
  }
  const std::uint64_t iova = (access & kAccessZeroBased) != 0 ? 0 : slot->mapped_iova;
  slot->region = {slot->region.pd, 0, slot->mapped_length, iova, access};
  slot->pieces = slot->mapped_pieces;
  slot->tag = static_cast<std::uint8_t>(key);
  slot->state = KeyState::VALID;
  tell_named(*slot);
  return {};
}

Result<std::uint32_t> MemoryTable::reregister_region(std::uint32_t handle,
                                                     const RegionRequest& request) {
  KeySlot* slot = object_of(handle);
  if (slot == nullptr || slot->kind != KeyKind::REGION) {
    return refuse(EINVAL, "mr", handle, "no such region of reg_mr");
  }
  if (slot->windows != 0) {
    return refuse(EBUSY, "mr", slot->windows, "memory windows are bound to the region");
  }
  if (Status status = check_region(request, limits_.max_region_bytes); !status.ok()) {
    return status;
  }
  tell_unnamed(*slot);
  revoke(*slot);
  const RegionRequest& before = slot->region;
  if (before.pd != request.pd || before.address != request.address ||
      before.length != request.length || before.iova != request.iova) {
    // Who still has the old key must not reach other memory by it.
    slot->tag = static_cast<std::uint8_t>(slot->tag + 1 + random_.below(16));
  }
  slot->region = request;
  tell_named(*slot);
  return key_of(*slot);
}

}  // namespace softhca
