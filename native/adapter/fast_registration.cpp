// Regions for fast registration, and changes of registered regions.

#include "adapter/state.hpp"
#include "memory/access_flags.hpp"

namespace softhca {

Result<MrInfo> Adapter::rereg_mr(std::uint32_t mr, std::uint32_t flags,
                                 const RegionRequest& wanted) {
  State& s = *state_;
  const KeySlot* slot = s.memory_table.find_object(mr);
  if (slot == nullptr) {
    return refuse(EINVAL, "mr", mr, "there is no such object");
  }
  if (flags == 0 || (flags & ~std::uint32_t{kReregTranslation | kReregPd | kReregAccess}) != 0) {
    return refuse(EINVAL, "flags", flags, "must name translation, PD, access, or several of them");
  }
  if ((flags & kReregTranslation) != 0 && slot->region.watched != nullptr) {
    return refuse(EOPNOTSUPP, "flags", flags,
                  "a region with notices keeps its memory: register the other memory anew");
  }
  if ((flags & kReregTranslation) != 0 && s.dm_of_region.contains(mr)) {
    return refuse(EOPNOTSUPP, "flags", flags, "a region of device memory stays there");
  }
  RegionRequest request = slot->region;
  if ((flags & kReregTranslation) != 0) {
    request.address = wanted.address;
    request.length = wanted.length;
    request.iova = wanted.iova;
  }
  if ((flags & kReregPd) != 0) {
    request.pd = wanted.pd;
  }
  if ((flags & kReregAccess) != 0) {
    request.access = wanted.access;
  }
  const std::uint32_t pd_before = slot->region.pd;
  if (s.pds.find(request.pd) == nullptr) {
    return refuse(EINVAL, "pd", request.pd, "there is no such object");
  }
  const Result<std::uint32_t> key = s.memory_table.reregister_region(mr, request);
  if (!key.ok()) {
    return key.status;
  }
  --s.pds.find(pd_before)->users;
  ++s.pds.find(request.pd)->users;
  return MrInfo{mr, key.value, (request.access & kRemoteRights) != 0 ? key.value : 0};
}

Result<MrInfo> Adapter::alloc_mr(std::uint32_t handle, MrType type, std::uint32_t max_sg) {
  State& s = *state_;
  ProtectionDomain* pd = s.pds.find(handle);
  if (pd == nullptr) {
    return refuse(EINVAL, "pd", handle, "there is no such object");
  }
  if (max_sg == 0 || max_sg > s.config.limits.max_fast_reg_page_list_len) {
    return refuse(EINVAL, "max_sg", max_sg, "must be 1 to max_fast_reg_page_list_len",
                  s.config.limits.max_fast_reg_page_list_len);
  }
  const Result<std::uint32_t> key = s.memory_table.alloc_fast_region(handle, type, max_sg);
  if (!key.ok()) {
    return key.status;
  }
  ++pd->users;
  return MrInfo{key.value, key.value, key.value};
}

Status Adapter::map_mr_sg(std::uint32_t mr, const FastMapping& mapping) {
  return state_->memory_table.map_fast_region(mr, mapping);
}

}  // namespace softhca
