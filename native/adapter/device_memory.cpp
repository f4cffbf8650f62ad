// Device memory: bytes inside the adapter, which work requests reach and host code only copies.

#include <algorithm>
#include <new>

#include "adapter/state.hpp"
#include "memory/access_flags.hpp"

namespace softhca {
namespace {

Status no_such(std::uint32_t dm) { return refuse(EINVAL, "dm", dm, "there is no such object"); }

Status check_part(const DeviceMemory& dm, std::uint64_t offset, std::uint64_t length) {
  if (offset > dm.bytes.size() || length > dm.bytes.size() - offset) {
    return refuse(EINVAL, "dm_offset", offset, "and the length must stay within the device memory");
  }
  return Status::success();
}

}  // namespace

Result<std::uint32_t> Adapter::alloc_dm(std::uint64_t length, std::uint32_t log_align_req) {
  State& s = *state_;
  if (length == 0) {
    return refuse(EINVAL, "length", length, "must be 1 to max_dm_size",
                  s.config.limits.max_dm_size);
  }
  if (log_align_req > kMaxDmLogAlign) {
    return refuse(EINVAL, "log_align_req", log_align_req, "must be at most 12, a page");
  }
  if (length > s.config.limits.max_dm_size - s.dm_bytes) {
    return refuse(ENOMEM, "max_dm_size", s.config.limits.max_dm_size,
                  "bytes are all there is, and fewer are left");
  }
  if (s.dms.full()) {
    return refuse(ENOMEM, "dm", s.dms.size(), "allocations exist already");
  }
  auto dm = std::make_unique<DeviceMemory>();
  dm->storage.resize(length + (std::uint64_t{1} << kMaxDmLogAlign));
  void* start = dm->storage.data();
  std::size_t space = dm->storage.size();
  std::align(std::size_t{1} << kMaxDmLogAlign, length, start, space);
  dm->bytes = {static_cast<std::uint8_t*>(start), length};
  const std::uint32_t handle = s.dms.insert(std::move(dm));
  s.dm_bytes += length;
  return handle;
}

Status Adapter::free_dm(std::uint32_t handle) {
  State& s = *state_;
  const DeviceMemory* dm = s.dms.find(handle);
  if (dm == nullptr) {
    return no_such(handle);
  }
  if (dm->regions != 0) {
    return refuse(EBUSY, "dm", dm->regions, "memory regions lie in it");
  }
  s.dm_bytes -= dm->bytes.size();
  s.dms.erase(handle);
  return Status::success();
}

Status Adapter::memcpy_to_dm(std::uint32_t handle, std::uint64_t offset, ByteView from) {
  const DeviceMemory* dm = state_->dms.find(handle);
  if (dm == nullptr) {
    return no_such(handle);
  }
  const Status status = check_part(*dm, offset, from.size());
  if (status.ok()) {
    std::ranges::copy(from, dm->bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  return status;
}

Status Adapter::memcpy_from_dm(std::uint32_t handle, std::uint64_t offset, ByteSpan to) {
  const DeviceMemory* dm = state_->dms.find(handle);
  if (dm == nullptr) {
    return no_such(handle);
  }
  const Status status = check_part(*dm, offset, to.size());
  if (status.ok()) {
    std::ranges::copy(dm->bytes.subspan(offset, to.size()), to.begin());
  }
  return status;
}

Result<MrInfo> Adapter::reg_dm_mr(std::uint32_t pd, std::uint32_t handle, std::uint64_t offset,
                                  std::uint64_t length, std::uint32_t access) {
  State& s = *state_;
  DeviceMemory* dm = s.dms.find(handle);
  if (dm == nullptr) {
    return no_such(handle);
  }
  if ((access & kAccessZeroBased) == 0) {
    return refuse(EINVAL, "access", access, "must have ZERO_BASED: device memory has no address");
  }
  if (const Status status = check_part(*dm, offset, length); !status.ok()) {
    return status;
  }
  const auto start = reinterpret_cast<std::uint64_t>(dm->bytes.data()) + offset;
  const Result<MrInfo> region = reg_mr(pd, start, length, 0, access);
  if (region.ok()) {
    ++dm->regions;
    s.dm_of_region[region.value.handle] = handle;
  }
  return region;
}

void Adapter::State::leave_device_memory(std::uint32_t mr) {
  const auto found = dm_of_region.find(mr);
  if (found == dm_of_region.end()) {
    return;
  }
  --dms.find(found->second)->regions;
  dm_of_region.erase(found);
}

}  // namespace softhca
