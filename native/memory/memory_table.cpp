#include "memory/memory_table.hpp"

#include <algorithm>

namespace softhca {
namespace {

constexpr std::uint32_t kKnownAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                       kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased |
                                       kAccessHugeTlb | kAccessOptionalRange;
constexpr std::uint32_t kUnsupportedAccess =
    kAccessOnDemand | kAccessFlushGlobal | kAccessFlushPersistent;

bool wraps(std::uint64_t address, std::uint64_t length) {
  return length != 0 && address + (length - 1) < address;
}

Status check_access_flags(std::uint32_t access) {
  if ((access & ~(kKnownAccess | kUnsupportedAccess)) != 0) {
    return refuse(EINVAL, "access", access, "has bits that are no access flag");
  }
  if ((access & kUnsupportedAccess) != 0) {
    return refuse(EOPNOTSUPP, "access", access,
                  "ON_DEMAND, FLUSH_GLOBAL and FLUSH_PERSISTENT are not supported");
  }
  if ((access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0 &&
      (access & kAccessLocalWrite) == 0) {
    return refuse(EINVAL, "access", access, "REMOTE_WRITE and REMOTE_ATOMIC require LOCAL_WRITE");
  }
  return Status::success();
}

}  // namespace

MemoryTable::MemoryTable(AddressSpace& space, Random& random, std::uint32_t max_regions,
                         std::uint64_t max_region_bytes)
    : space_(space),
      random_(random),
      max_regions_(max_regions),
      max_region_bytes_(max_region_bytes),
      slots_(1) {}

Result<std::uint32_t> MemoryTable::register_region(const RegionRequest& request) {
  if (Status status = check_access_flags(request.access); !status.ok()) {
    return status;
  }
  if (wraps(request.address, request.length) || wraps(request.iova, request.length)) {
    return refuse(EINVAL, "length", request.length, "the range must not wrap 2^64");
  }
  if (request.length > max_region_bytes_) {
    return refuse(EINVAL, "length", request.length, "is above max_mr_size");
  }
  if ((request.access & kAccessZeroBased) != 0 && request.iova != 0) {
    return refuse(EINVAL, "iova", request.iova, "must be 0 with ZERO_BASED");
  }
  std::uint32_t index = 0;
  if (slots_.size() - 1 - free_.size() >= max_regions_) {
    return refuse(ENOMEM, "mr", max_regions_, "max_mr regions are registered already");
  }
  // Dead slots are taken up again in random order, so that a key kept too long meets another
  // region's tag.
  if (free_.size() > 16 || slots_.size() > max_regions_) {
    const auto pick = random_.below(free_.size());
    index = free_[pick];
    free_[pick] = free_.back();
    free_.pop_back();
  } else {
    index = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
    slots_.back().tag = static_cast<std::uint8_t>(random_.next());
  }
  Slot& slot = slots_[index];
  slot.region = request;
  slot.tag = static_cast<std::uint8_t>(slot.tag + 1 + random_.below(16));
  slot.live = true;
  return index << 8 | slot.tag;
}

Status MemoryTable::deregister_region(std::uint32_t key) {
  if (slot_of(key) == nullptr) {
    return refuse(EINVAL, "mr", key, "no such memory region");
  }
  slots_[key >> 8].live = false;
  free_.push_back(key >> 8);
  return Status::success();
}

const RegionRequest* MemoryTable::find(std::uint32_t key) const {
  const Slot* slot = slot_of(key);
  return slot == nullptr ? nullptr : &slot->region;
}

const MemoryTable::Slot* MemoryTable::slot_of(std::uint32_t key) const {
  const std::uint32_t index = key >> 8;
  if (index == 0 || index >= slots_.size()) {
    return nullptr;
  }
  const Slot& slot = slots_[index];
  return slot.live && slot.tag == (key & 0xff) ? &slot : nullptr;
}

AccessFault MemoryTable::check(std::uint32_t pd, std::uint32_t key, std::uint64_t address,
                               std::uint64_t length, std::uint32_t access) const {
  const AccessFault fault{Reason::NONE, key, address, length};
  const auto because = [&fault](Reason reason) {
    AccessFault refused = fault;
    refused.reason = reason;
    return refused;
  };
  const Slot* slot = slot_of(key);
  if (slot == nullptr) {
    return because(Reason::UNKNOWN_KEY);
  }
  const RegionRequest& region = slot->region;
  if (region.pd != pd) {
    return because(Reason::OTHER_PD);
  }
  if ((region.access & access) != access) {
    return because(Reason::MISSING_RIGHT);
  }
  // Written so that nothing can wrap: the offset is at most the length, and the rest is compared
  // with what is left.
  if (address < region.iova || address - region.iova > region.length ||
      length > region.length - (address - region.iova)) {
    return because(Reason::OUT_OF_BOUNDS);
  }
  return {};
}

std::uint64_t MemoryTable::locate(std::uint32_t key, std::uint64_t address) const {
  const RegionRequest& region = slots_[key >> 8].region;
  return region.address + (address - region.iova);
}

template <class Move>
AccessFault MemoryTable::walk(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                              std::uint64_t length, std::uint32_t access, Move move) {
  std::uint64_t done = 0;
  for (const Sge& sge : sges) {
    if (done == length) {
      break;
    }
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint64_t step = std::min<std::uint64_t>(sge.length - offset, length - done);
    // The whole entry is checked, not the piece: an entry that leaves its region is wrong from its
    // first byte.
    AccessFault fault = check(pd, sge.lkey, sge.address, sge.length, access);
    if (!fault.ok()) {
      return fault;
    }
    if (!move(locate(sge.lkey, sge.address + offset), done, step)) {
      return {Reason::MEMORY_GONE, sge.lkey, sge.address + offset, step};
    }
    done += step;
    offset = 0;
  }
  if (done != length) {
    return {Reason::TOO_LONG, 0, 0, length};
  }
  return {};
}

AccessFault MemoryTable::gather(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                                ByteSpan out) {
  return walk(pd, sges, offset, out.size(), 0,
              [&](std::uint64_t at, std::uint64_t done, std::uint64_t step) {
                return space_.copy_in(at, out.subspan(done, step));
              });
}

AccessFault MemoryTable::scatter(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                                 ByteView in) {
  return walk(pd, sges, offset, in.size(), kAccessLocalWrite,
              [&](std::uint64_t at, std::uint64_t done, std::uint64_t step) {
                return space_.copy_out(at, in.subspan(done, step));
              });
}

AccessFault MemoryTable::check_list(std::uint32_t pd, std::span<const Sge> sges,
                                    std::uint32_t access) const {
  for (const Sge& sge : sges) {
    if (sge.length == 0) {
      continue;
    }
    AccessFault fault = check(pd, sge.lkey, sge.address, sge.length, access);
    if (!fault.ok()) {
      return fault;
    }
  }
  return {};
}

AccessFault MemoryTable::check_remote(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                                      std::uint64_t length, std::uint32_t access) const {
  return check(pd, rkey, address, length, access);
}

AccessFault MemoryTable::read_remote(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                                     ByteSpan out) {
  AccessFault fault = check(pd, rkey, address, out.size(), kAccessRemoteRead);
  if (fault.ok() && !space_.copy_in(locate(rkey, address), out)) {
    fault = {Reason::MEMORY_GONE, rkey, address, out.size()};
  }
  return fault;
}

AccessFault MemoryTable::write_remote(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                                      ByteView in) {
  AccessFault fault = check(pd, rkey, address, in.size(), kAccessRemoteWrite);
  if (fault.ok() && !space_.copy_out(locate(rkey, address), in)) {
    fault = {Reason::MEMORY_GONE, rkey, address, in.size()};
  }
  return fault;
}

AccessFault MemoryTable::fetch_add(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                                   std::uint64_t addend, std::uint64_t& original) {
  AccessFault fault = check(pd, rkey, address, 8, kAccessRemoteAtomic);
  if (fault.ok() && !space_.fetch_add(locate(rkey, address), addend, original)) {
    fault = {Reason::MEMORY_GONE, rkey, address, 8};
  }
  return fault;
}

AccessFault MemoryTable::compare_swap(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                                      std::uint64_t compare, std::uint64_t swap,
                                      std::uint64_t& original) {
  AccessFault fault = check(pd, rkey, address, 8, kAccessRemoteAtomic);
  if (fault.ok() && !space_.compare_swap(locate(rkey, address), compare, swap, original)) {
    fault = {Reason::MEMORY_GONE, rkey, address, 8};
  }
  return fault;
}

}  // namespace softhca
