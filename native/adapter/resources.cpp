// Protection domains, memory regions, address handles, XRC domains and shared receive queues.

#include <algorithm>
#include <utility>

#include "adapter/state.hpp"
#include "memory/access_flags.hpp"

namespace softhca {
namespace {

Status no_such(const char* kind, std::uint32_t handle) {
  return refuse(EINVAL, kind, handle, "there is no such object");
}
Status in_use(const char* kind, std::uint32_t users) {
  return refuse(EBUSY, kind, users, "still has objects that use it");
}

}  // namespace

Result<std::uint32_t> Adapter::alloc_pd() {
  if (state_->pds.full()) {
    return refuse(ENOMEM, "max_pd", state_->config.limits.max_pd,
                  "protection domains exist already");
  }
  return state_->pds.insert(std::make_unique<ProtectionDomain>());
}

Status Adapter::dealloc_pd(std::uint32_t handle) {
  const ProtectionDomain* pd = state_->pds.find(handle);
  if (pd == nullptr) {
    return no_such("pd", handle);
  }
  if (pd->users != 0) {
    return in_use("pd", pd->users);
  }
  state_->pds.erase(handle);
  return Status::success();
}

Result<MrInfo> Adapter::reg_mr(std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                               std::uint64_t iova, std::uint32_t access) {
  return reg_region({pd, address, length, iova, access});
}

Result<MrInfo> Adapter::reg_watched_mr(std::uint32_t pd, std::uint64_t address,
                                       std::uint64_t length, std::uint64_t iova,
                                       std::uint32_t access,
                                       std::shared_ptr<const WatchedRange> watched) {
  return reg_region({pd, address, length, iova, access, std::move(watched)});
}

Result<MrInfo> Adapter::reg_region(const RegionRequest& request) {
  ProtectionDomain* pd = state_->pds.find(request.pd);
  if (pd == nullptr) {
    return no_such("pd", request.pd);
  }
  const Result<std::uint32_t> key = state_->memory_table.register_region(request);
  if (!key.ok()) {
    return key.status;
  }
  ++pd->users;
  const bool remote = (request.access & kRemoteRights) != 0;
  return MrInfo{key.value, key.value, remote ? key.value : 0};
}

Status Adapter::dereg_mr(std::uint32_t mr) {
  const KeySlot* slot = state_->memory_table.find_object(mr);
  if (slot == nullptr) {
    return no_such("mr", mr);
  }
  const std::uint32_t pd = slot->region.pd;
  const Status status = state_->memory_table.deregister_region(mr);
  if (status.ok()) {
    --state_->pds.find(pd)->users;
    state_->leave_device_memory(mr);
  }
  return status;
}

Result<std::uint32_t> Adapter::create_ah(std::uint32_t handle, const AhAttr& attr) {
  ProtectionDomain* pd = state_->pds.find(handle);
  if (pd == nullptr) {
    return no_such("pd", handle);
  }
  if (Status status = state_->check_ah(attr); !status.ok()) {
    return status;
  }
  if (state_->ahs.full()) {
    return refuse(ENOMEM, "max_ah", state_->config.limits.max_ah, "address handles exist already");
  }
  const std::uint32_t made =
      state_->ahs.insert(std::make_unique<AddressHandle>(AddressHandle{handle, attr}));
  ++pd->users;  // Now that there was memory for it.
  return made;
}

Result<AhAttr> Adapter::query_ah(std::uint32_t handle) const {
  const AddressHandle* ah = state_->ahs.find(handle);
  if (ah == nullptr) {
    return no_such("ah", handle);
  }
  return ah->attr;
}

Status Adapter::destroy_ah(std::uint32_t handle) {
  const AddressHandle* ah = state_->ahs.find(handle);
  if (ah == nullptr) {
    return no_such("ah", handle);
  }
  --state_->pds.find(ah->pd)->users;
  state_->ahs.erase(handle);
  return Status::success();
}

Result<std::uint32_t> Adapter::alloc_xrcd() {
  if (state_->xrcds.full()) {
    return refuse(ENOMEM, "max_xrcd", state_->config.limits.max_xrcd, "XRC domains exist already");
  }
  return state_->xrcds.insert(std::make_unique<XrcDomain>());
}

Status Adapter::dealloc_xrcd(std::uint32_t handle) {
  const XrcDomain* xrcd = state_->xrcds.find(handle);
  if (xrcd == nullptr) {
    return no_such("xrcd", handle);
  }
  if (xrcd->users != 0) {
    return in_use("xrcd", xrcd->users);
  }
  state_->xrcds.erase(handle);
  return Status::success();
}

// --- shared receive queues
// ------------------------------------------------------------------------------------------

Result<std::uint32_t> Adapter::create_srq(std::uint32_t pd_handle, const SrqAttr& attr,
                                          std::uint32_t xrcd_handle, std::uint32_t cq_handle) {
  State& s = *state_;
  ProtectionDomain* pd = s.pds.find(pd_handle);
  XrcDomain* xrcd = s.xrcds.find(xrcd_handle);
  CompletionQueue* cq = s.cqs.find(cq_handle);
  if (pd == nullptr) {
    return no_such("pd", pd_handle);
  }
  if ((xrcd_handle != 0) != (cq_handle != 0)) {
    return refuse(EINVAL, "xrcd", xrcd_handle, "an XRC SRQ needs both an XRC domain and a CQ");
  }
  if (xrcd_handle != 0 && xrcd == nullptr) {
    return no_such("xrcd", xrcd_handle);
  }
  if (cq_handle != 0 && cq == nullptr) {
    return no_such("cq", cq_handle);
  }
  if (attr.max_wr == 0 || attr.max_wr > s.config.limits.max_srq_wr) {
    return refuse(EINVAL, "max_wr", attr.max_wr, "must be 1 to max_srq_wr",
                  s.config.limits.max_srq_wr);
  }
  if (attr.max_sge > s.config.limits.max_srq_sge) {
    return refuse(EINVAL, "max_sge", attr.max_sge, "is above max_srq_sge",
                  s.config.limits.max_srq_sge);
  }
  if (attr.srq_limit > attr.max_wr) {
    return refuse(EINVAL, "srq_limit", attr.srq_limit, "is above max_wr", attr.max_wr);
  }
  if (s.srqs.full()) {
    return refuse(ENOMEM, "max_srq", s.config.limits.max_srq,
                  "shared receive queues exist already");
  }
  auto srq = std::make_unique<SharedReceiveQueue>();
  srq->pd = pd_handle;
  srq->xrcd = xrcd_handle;
  srq->cq = cq_handle;
  srq->limit = attr.srq_limit;
  srq->ring.allocate(attr.max_wr, attr.max_sge);
  ++pd->users;
  if (xrcd_handle != 0) {
    ++xrcd->users;
    ++cq->users;
  }
  const std::uint32_t handle = s.srqs.insert(std::move(srq));
  s.srqs.find(handle)->handle = handle;
  return handle;
}

Status Adapter::modify_srq(std::uint32_t handle, const SrqAttr& attr, std::uint32_t mask) {
  SharedReceiveQueue* srq = state_->srqs.find(handle);
  if (srq == nullptr) {
    return no_such("srq", handle);
  }
  if ((mask & ~std::uint32_t{kSrqMaxWr | kSrqLimit}) != 0) {
    return refuse(EINVAL, "attr_mask", mask, "has bits that are no SRQ attribute");
  }
  if ((mask & kSrqMaxWr) != 0) {
    return refuse(EINVAL, "max_wr", attr.max_wr, "cannot be changed: SRQ_RESIZE is not offered");
  }
  if ((mask & kSrqLimit) != 0) {
    if (attr.srq_limit > srq->ring.capacity()) {
      return refuse(EINVAL, "srq_limit", attr.srq_limit, "is above max_wr", srq->ring.capacity());
    }
    srq->limit = attr.srq_limit;
  }
  return Status::success();
}

Result<SrqAttr> Adapter::query_srq(std::uint32_t handle) const {
  const SharedReceiveQueue* srq = state_->srqs.find(handle);
  if (srq == nullptr) {
    return no_such("srq", handle);
  }
  return SrqAttr{srq->ring.capacity(), srq->ring.max_sge(), srq->limit};
}

Result<std::uint32_t> Adapter::srq_number(std::uint32_t handle) const {
  if (state_->srqs.find(handle) == nullptr) {
    return no_such("srq", handle);
  }
  return handle;
}

std::uint32_t Adapter::srq_cq(std::uint32_t handle) const {
  const SharedReceiveQueue* srq = state_->srqs.find(handle);
  return srq == nullptr ? 0 : srq->cq;
}

Status Adapter::destroy_srq(std::uint32_t handle) {
  const SharedReceiveQueue* srq = state_->srqs.find(handle);
  if (srq == nullptr) {
    return no_such("srq", handle);
  }
  if (srq->users != 0) {
    return in_use("srq", srq->users);
  }
  // An XRC target is no user of the queue, but completes on its CQ what it has begun to receive.
  bool filling = false;
  state_->qps.for_each(
      [&](const QueuePair& qp) { filling = filling || qp.responder.fills_receive_of(*srq); });
  if (filling) {
    return refuse(EBUSY, "srq", handle, "a target is receiving a message from it");
  }
  --state_->pds.find(srq->pd)->users;
  if (srq->xrcd != 0) {
    --state_->xrcds.find(srq->xrcd)->users;
    --state_->cqs.find(srq->cq)->users;
  }
  state_->srqs.erase(handle);
  state_->async_events.forget_srq(handle);
  return Status::success();
}

Status Adapter::post_srq_recv(std::uint32_t handle, std::span<const RecvWr* const> wrs,
                              std::size_t& posted, std::uint64_t now_ns,
                              std::span<const std::uint64_t> cqes) {
  state_->set_time(now_ns);
  posted = 0;
  SharedReceiveQueue* srq = state_->srqs.find(handle);
  if (srq == nullptr) {
    return no_such("srq", handle);
  }
  if (srq->ring.source() != nullptr) {
    return refuse(EINVAL, "srq", handle, "is posted to through its mapped queue");
  }
  for (const RecvWr* wr : wrs) {
    if (wr->sges.size() > srq->ring.max_sge()) {
      return refuse(EINVAL, "num_sge", wr->sges.size(), "is above the SRQ's max_sge",
                    srq->ring.max_sge());
    }
    if (srq->ring.full()) {
      return refuse(ENOMEM, "max_wr", srq->ring.capacity(), "the shared receive queue is full");
    }
    srq->ring.push(wr->wr_id, wr->sges, cqes.empty() ? 0 : cqes[posted]);
    ++posted;
    if (state_->observer != nullptr) {
      std::uint64_t length = 0;
      for (const Sge& sge : wr->sges) length += sge.length;
      state_->observer->posted_shared_receive(handle, wr->wr_id, length);
    }
  }
  return Status::success();
}

}  // namespace softhca
