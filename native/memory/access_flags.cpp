#include "memory/access_flags.hpp"

namespace softhca {
namespace {

constexpr std::uint32_t kKnownAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                       kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased |
                                       kAccessOnDemand | kAccessHugeTlb | kAccessFlushGlobal |
                                       kAccessFlushPersistent | kAccessOptionalRange;

}  // namespace

Status check_access_flags(std::uint32_t access) {
  if ((access & ~kKnownAccess) != 0) {
    return refuse(EINVAL, "access", access, "has bits that are no access flag");
  }
  if ((access & kAccessFlushPersistent) != 0) {
    return refuse(EOPNOTSUPP, "access", access,
                  "FLUSH_PERSISTENT is not supported: this memory does not persist");
  }
  if ((access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0 &&
      (access & kAccessLocalWrite) == 0) {
    return refuse(EINVAL, "access", access, "REMOTE_WRITE and REMOTE_ATOMIC require LOCAL_WRITE");
  }
  return Status::success();
}

Status check_region(const RegionRequest& request, std::uint64_t max_region_bytes) {
  if (Status status = check_access_flags(request.access); !status.ok()) {
    return status;
  }
  if (wraps(request.address, request.length) || wraps(request.iova, request.length)) {
    return refuse(EINVAL, "length", request.length, "the range must not wrap 2^64");
  }
  if (request.length > max_region_bytes) {
    return refuse(EINVAL, "length", request.length, "is above max_mr_size", max_region_bytes);
  }
  if ((request.access & kAccessZeroBased) != 0 && request.iova != 0) {
    return refuse(EINVAL, "iova", request.iova, "must be 0 with ZERO_BASED");
  }
  const bool whole = request.address == 0 && request.length == kWholeSpaceBytes;
  if (whole && (request.access & kAccessOnDemand) == 0) {
    return refuse(EINVAL, "access", request.access,
                  "the whole address space needs ON_DEMAND: its pages come and go");
  }
  if (whole && (request.access & (kAccessMwBind | kAccessZeroBased)) != 0) {
    return refuse(EINVAL, "access", request.access,
                  "the whole address space takes neither MW_BIND nor ZERO_BASED");
  }
  return Status::success();
}

}  // namespace softhca
