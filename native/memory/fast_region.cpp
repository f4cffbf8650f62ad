// Regions whose key is made valid and invalid by work requests (IBTA Vol 1, 10.6.4.8), and changes
// of a registered region (11.2.8.7).

#include <algorithm>

#include "memory/access_flags.hpp"
#include "memory/memory_table.hpp"

namespace softhca {
namespace {

// The pieces that entries of a list make.
struct PieceList {
  std::vector<Piece> pieces;
  std::uint64_t length = 0;
  std::size_t last_entry = 0;  // That has bytes.

  void add(std::size_t entry, std::uint64_t address, std::uint64_t bytes) {
    pieces.push_back({address, bytes, length});
    length += bytes;
    last_entry = entry;
  }

  // Pages must follow each other without gaps: only the first piece may begin inside one, and only
  // the last may end there. An entry that begins where the last one ended goes on with its piece,
  // as ib_map_mr_sg() has it.
  Status add_pages(std::size_t entry, std::uint64_t address, std::uint64_t bytes,
                   std::uint64_t page_bytes) {
    const std::uint64_t mask = page_bytes - 1;
    const std::uint64_t end = pieces.empty() ? 0 : pieces.back().address + pieces.back().length;
    if (end != 0 && end == address) {
      pieces.back().length += bytes;
      length += bytes;
      last_entry = entry;
      return Status::success();
    }
    if ((end & mask) != 0) {
      return refuse(EINVAL, "sg", last_entry,
                    "may not end inside a page, unless it is the last entry or the next goes on "
                    "from there");
    }
    if (!pieces.empty() && (address & mask) != 0) {
      return refuse(EINVAL, "sg", entry,
                    "may not begin inside a page, unless it is the first entry or goes on from the "
                    "one before it");
    }
    add(entry, address, bytes);
    return Status::success();
  }

  std::uint64_t pages(std::uint64_t page_bytes) const {
    const std::uint64_t mask = page_bytes - 1;
    std::uint64_t count = 0;
    for (const Piece& piece : pieces) {
      const std::uint64_t end = piece.address + piece.length;
      count += (((end + mask) & ~mask) - (piece.address & ~mask)) / page_bytes;
    }
    return count;
  }
};

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
  const std::uint64_t page_bytes = mapping.page_bytes;
  const bool has_pages = !slot->may_have_gaps;
  if (page_bytes < 4096 || (page_bytes & (page_bytes - 1)) != 0) {
    return refuse(EINVAL, "page_size", page_bytes, "must be a power of two, 4096 at least");
  }
  PieceList list;
  for (std::size_t entry = 0; entry < mapping.ranges.size(); ++entry) {
    const auto& [address, bytes] = mapping.ranges[entry];
    if (wraps(address, bytes) || list.length + bytes < list.length) {
      return refuse(EINVAL, "sg", bytes, "must not wrap 2^64");
    }
    if (bytes == 0) {
      continue;
    }
    if (!has_pages) {
      list.add(entry, address, bytes);
    } else if (Status status = list.add_pages(entry, address, bytes, page_bytes); !status.ok()) {
      return status;
    }
  }
  if (list.length == 0) {
    return refuse(EINVAL, "sg", 0, "must hold a byte at least");
  }
  if (list.length > limits_.max_region_bytes) {
    return refuse(EINVAL, "sg", list.length, "are more bytes than max_mr_size",
                  limits_.max_region_bytes);
  }
  if (has_pages && list.pages(page_bytes) > slot->max_pieces) {
    return refuse(EINVAL, "sg", list.pages(page_bytes), "are more pages than max_sg",
                  slot->max_pieces);
  }
  if (!has_pages && list.pieces.size() > slot->max_pieces) {
    return refuse(EINVAL, "sg", list.pieces.size(), "are more than max_sg", slot->max_pieces);
  }
  const std::uint64_t iova = mapping.iova.value_or(list.pieces.front().address);
  if (wraps(iova, list.length)) {
    return refuse(EINVAL, "iova", iova, "the range must not wrap 2^64");
  }
  slot->mapped_length = list.length;
  slot->mapped_pieces = std::move(list.pieces);
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
  const RegionRequest& before = slot->region;
  const bool is_another = before.pd != request.pd || before.address != request.address ||
                          before.length != request.length || before.iova != request.iova;
  // An answer that is on its way stays where its key still grants it: only what would be refused
  // from now on is taken back.
  if (is_another || (before.access & ~request.access & kAccessRemoteRead) != 0) {
    revoke(*slot);
  }
  if (is_another) {
    // Who still has the old key must not reach other memory by it, for as long as tags last.
    slot->tag = static_cast<std::uint8_t>(slot->tag + 1);
  }
  slot->region = request;
  note_plain(*slot);
  tell_named(*slot);
  return key_of(*slot);
}

}  // namespace softhca
