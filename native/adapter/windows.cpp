// Memory windows, and binding those of type 1 (type 2 is bound by work requests alone).

#include "adapter/state.hpp"

namespace softhca {

Result<std::uint32_t> Adapter::alloc_mw(std::uint32_t handle, MwType type) {
  ProtectionDomain* pd = state_->pds.find(handle);
  if (pd == nullptr) {
    return refuse(EINVAL, "pd", handle, "there is no such object");
  }
  const Result<std::uint32_t> window = state_->memory_table.alloc_window(handle, type);
  pd->users += window.ok() ? 1 : 0;
  return window;
}

Status Adapter::dealloc_mw(std::uint32_t mw) {
  const KeySlot* window = state_->memory_table.find_object(mw);
  const std::uint32_t pd = window != nullptr ? window->region.pd : 0;
  const Status status = state_->memory_table.dealloc_window(mw);
  if (status.ok()) {
    --state_->pds.find(pd)->users;
  }
  return status;
}

Result<std::uint32_t> Adapter::bind_mw(std::uint32_t qpn, std::uint32_t mw, const BindInfo& info,
                                       std::uint64_t wr_id, std::uint32_t send_flags,
                                       std::uint64_t now_ns) {
  if ((info.access & kAccessZeroBased) != 0) {
    return refuse(EINVAL, "access", info.access, "a type 1 window cannot be ZERO_BASED");
  }
  const Result<std::uint32_t> key = state_->memory_table.next_bind_key(mw);
  if (!key.ok()) {
    return key;
  }
  SendWr wr;
  wr.wr_id = wr_id;
  wr.opcode = WrOpcode::BIND_MW;
  wr.send_flags = send_flags;
  wr.memory = {mw, key.value, MwType::TYPE_1, info};
  const SendWr* list[] = {&wr};
  std::size_t posted = 0;
  const Status status = post_send(qpn, list, posted, now_ns);
  if (!status.ok()) {
    return status;
  }
  state_->memory_table.bind_posted(mw);
  return key;
}

Result<KeyInfo> Adapter::query_key(std::uint32_t handle) const {
  const KeySlot* slot = state_->memory_table.find_object(handle);
  if (slot == nullptr) {
    return refuse(EINVAL, "handle", handle, "there is no such region or window");
  }
  return KeyInfo{MemoryTable::key_of(*slot), slot->state};
}

}  // namespace softhca
