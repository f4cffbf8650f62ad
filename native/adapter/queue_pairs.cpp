// Queue pairs: creating, modifying, posting, destroying, and their multicast groups.

#include <algorithm>

#include "adapter/state.hpp"

namespace softhca {
namespace {

Status no_such(const char* kind, std::uint32_t handle) {
  return refuse(EINVAL, kind, handle, "there is no such object");
}

bool known_type(QpType type) {
  return type == QpType::RC || type == QpType::UC || type == QpType::UD ||
         type == QpType::XRC_SEND || type == QpType::XRC_RECV;
}

Status check_cap(const QpCap& cap, const Limits& limits) {
  const struct {
    const char* name;
    std::uint32_t value;
    std::uint32_t limit;
    const char* rule;
  } checks[] = {
      {"max_send_wr", cap.max_send_wr, limits.max_qp_wr, "is above max_qp_wr"},
      {"max_recv_wr", cap.max_recv_wr, limits.max_qp_wr, "is above max_qp_wr"},
      {"max_send_sge", cap.max_send_sge, limits.max_sge, "is above max_sge"},
      {"max_recv_sge", cap.max_recv_sge, limits.max_sge, "is above max_sge"},
      {"max_inline_data", cap.max_inline_data, limits.max_inline_data, "is above max_inline_data"},
  };
  for (const auto& check : checks) {
    if (check.value > check.limit) {
      return refuse(EINVAL, check.name, check.value, check.rule, check.limit);
    }
  }
  return Status::success();
}

}  // namespace

Result<std::uint32_t> Adapter::create_qp(QpInit& init) {
  State& s = *state_;
  if (!known_type(init.type)) {
    return refuse(EOPNOTSUPP, "qp_type", static_cast<std::uint64_t>(init.type),
                  "must be RC, UC, UD, XRC_SEND or XRC_RECV");
  }
  const bool target = init.type == QpType::XRC_RECV;
  const bool receives = !target && init.type != QpType::XRC_SEND;
  ProtectionDomain* pd = s.pds.find(init.pd);
  QueuePair::Queues queues;
  queues.send_cq = s.cqs.find(init.send_cq);
  queues.recv_cq = s.cqs.find(init.recv_cq);
  queues.srq = s.srqs.find(init.srq);
  XrcDomain* xrcd = s.xrcds.find(init.xrcd);
  if (!target && pd == nullptr) {
    return no_such("pd", init.pd);
  }
  if (!target && queues.send_cq == nullptr) {
    return no_such("send_cq", init.send_cq);
  }
  if (receives && queues.recv_cq == nullptr) {
    return no_such("recv_cq", init.recv_cq);
  }
  if (init.srq != 0 && (queues.srq == nullptr || !receives || queues.srq->xrcd != 0)) {
    return refuse(EINVAL, "srq", init.srq, "must be a basic SRQ, and the QP one that receives");
  }
  if (target && xrcd == nullptr) {
    return no_such("xrcd", init.xrcd);
  }
  if (Status status = check_cap(init.cap, s.config.limits); !status.ok()) {
    return status;
  }
  if (s.qps.full()) {
    return refuse(ENOMEM, "max_qp", s.config.limits.max_qp, "queue pairs exist already");
  }
  // What a kind of queue pair does not have is reported as zero.
  if (queues.srq != nullptr || !receives) {
    init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
  }
  if (!receives) {
    queues.recv_cq = nullptr;
  }
  if (target) {
    init.cap = {0, 0, 0, 0, 0};
    queues.send_cq = nullptr;
  }
  const std::uint32_t qpn = s.qps.reserve();
  s.qps.insert(qpn, std::make_unique<QueuePair>(s, qpn, init, queues));
  if (init.type == QpType::UD) s.heeds_fields = true;
  // Counted now that it exists: there may have been no memory for it.
  ++(target ? xrcd->users : pd->users);
  for (CompletionQueue* cq : {queues.send_cq, queues.recv_cq}) {
    if (cq != nullptr) {
      ++cq->users;
    }
  }
  if (queues.srq != nullptr) {
    ++queues.srq->users;
  }
  if (s.observer != nullptr) {
    const std::uint32_t receive_pd = queues.srq != nullptr ? queues.srq->pd : init.pd;
    s.observer->created(qpn, init.type, init.pd, receive_pd, init.cap.max_send_wr,
                        init.cap.max_recv_wr);
  }
  return qpn;
}

Status Adapter::destroy_qp(std::uint32_t qpn) {
  State& s = *state_;
  QueuePair* qp = s.qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  if (qp->multicast_groups != 0) {
    return refuse(EBUSY, "qp", qp->multicast_groups, "is still attached to multicast groups");
  }
  // Windows 2A hold their queue pair; those of 2B go with it (IBTA Vol 1, o10-2.2.5).
  if (const std::uint32_t bound = s.memory_table.windows_of(qpn);
      s.config.windows_2a && bound != 0) {
    return refuse(EBUSY, "qp", bound, "type 2A windows are bound to it: invalidate them first");
  }
  if (s.observer != nullptr) {
    s.observer->destroyed(qpn);
  }
  s.settle_debts(*qp);
  qp->recall_payloads();
  s.memory_table.release_windows_of(qpn);
  for (CompletionQueue* cq : {qp->queues.send_cq, qp->queues.recv_cq}) {
    if (cq != nullptr) {
      cq->purge(qpn);
      --cq->users;
    }
  }
  if (qp->init.type == QpType::XRC_RECV) {
    // Its receives completed on the CQs of SRQs, some of which may be gone.
    s.cqs.for_each([qpn](CompletionQueue& cq) { cq.purge(qpn); });
    --s.xrcds.find(qp->init.xrcd)->users;
  } else {
    --s.pds.find(qp->init.pd)->users;
  }
  if (qp->queues.srq != nullptr) {
    --qp->queues.srq->users;
  }
  s.timers.forget(qpn);
  s.qps.erase(qpn);
  s.async_events.forget_qp(qpn);
  return Status::success();
}

std::vector<std::uint64_t> Adapter::waiting_cqes(std::uint32_t qpn) const {
  std::vector<std::uint64_t> tokens;
  const QueuePair* qp = state_->qps.find(qpn);
  if (qp == nullptr) {
    return tokens;
  }
  const auto look = [&](const CompletionQueue& cq) {
    cq.for_each([&](const Completion& completion) {
      if (completion.qpn == qpn && completion.cqe != 0) {
        tokens.push_back(completion.cqe);
      }
    });
  };
  const CompletionQueue* send_cq = qp->queues.send_cq;
  const CompletionQueue* recv_cq = qp->queues.recv_cq;
  if (qp->init.type == QpType::XRC_RECV) {
    state_->cqs.for_each(look);
  } else if (recv_cq != nullptr) {
    look(*recv_cq);
  }
  if (send_cq != nullptr && send_cq != recv_cq) {
    look(*send_cq);
  }
  return tokens;
}

std::vector<std::uint64_t> Adapter::waiting_cqes_in(std::uint32_t cq) const {
  std::vector<std::uint64_t> tokens;
  if (const CompletionQueue* queue = state_->cqs.find(cq); queue != nullptr) {
    queue->for_each([&](const Completion& completion) {
      if (completion.cqe != 0) tokens.push_back(completion.cqe);
    });
  }
  return tokens;
}

std::uint64_t Adapter::filling_cqe(std::uint32_t qpn) const {
  const QueuePair* qp = state_->qps.find(qpn);
  return qp == nullptr ? 0 : qp->responder.filling_cqe();
}

Status Adapter::State::check_attributes(const QueuePair& qp, const QpAttr& attr,
                                        std::uint32_t mask) const {
  constexpr std::uint32_t kQpAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                      kAccessRemoteAtomic | kAccessMwBind | kAccessFlushGlobal |
                                      kAccessOptionalRange;
  const struct {
    std::uint32_t bit;
    const char* name;
    std::uint64_t value;
    bool good;
    const char* rule;
    std::uint64_t bound = Status::kNoBound;
  } checks[] = {
      {kQpState, "qp_state", static_cast<std::uint64_t>(attr.qp_state),
       attr.qp_state <= QpState::ERR && attr.qp_state != QpState::SQE, "is no state to modify to"},
      {kQpPort, "port_num", attr.port_num, attr.port_num == 1, "must be 1, the only port"},
      {kQpPkeyIndex, "pkey_index", attr.pkey_index, attr.pkey_index < config.pkeys.size(),
       "names no entry of the P_Key table"},
      {kQpAccessFlags, "qp_access_flags", attr.qp_access_flags,
       (attr.qp_access_flags & ~kQpAccess) == 0, "has bits that a queue pair does not take"},
      {kQpPathMtu, "path_mtu", attr.path_mtu,
       attr.path_mtu >= 1 && attr.path_mtu <= config.active_mtu,
       "must be an MTU code from 1 to the port's active MTU"},
      {kQpTimeout, "timeout", attr.timeout, attr.timeout <= 31, "must be 0 to 31"},
      {kQpRetryCnt, "retry_cnt", attr.retry_cnt, attr.retry_cnt <= 7, "must be 0 to 7"},
      {kQpRnrRetry, "rnr_retry", attr.rnr_retry, attr.rnr_retry <= 7, "must be 0 to 7"},
      {kQpMinRnrTimer, "min_rnr_timer", attr.min_rnr_timer, attr.min_rnr_timer <= 31,
       "must be 0 to 31"},
      {kQpMaxQpRdAtomic, "max_rd_atomic", attr.max_rd_atomic,
       attr.max_rd_atomic <= config.limits.max_qp_init_rd_atom, "is above max_qp_init_rd_atom",
       config.limits.max_qp_init_rd_atom},
      {kQpMaxDestRdAtomic, "max_dest_rd_atomic", attr.max_dest_rd_atomic,
       attr.max_dest_rd_atomic <= config.limits.max_qp_rd_atom, "is above max_qp_rd_atom",
       config.limits.max_qp_rd_atom},
      {kQpPathMigState, "path_mig_state", static_cast<std::uint64_t>(attr.path_mig_state),
       attr.path_mig_state <= MigState::ARMED, "must be MIGRATED, REARM or ARMED"},
      {kQpAltPath, "alt_pkey_index", attr.alt_pkey_index, attr.alt_pkey_index < config.pkeys.size(),
       "names no entry of the P_Key table"},
      {kQpAltPath, "alt_timeout", attr.alt_timeout, attr.alt_timeout <= 31, "must be 0 to 31"},
      {kQpCap, "attr_mask", kQpCap, false, "queue pairs cannot be resized"},
  };
  for (const auto& check : checks) {
    if ((mask & check.bit) != 0 && !check.good) {
      return refuse(EINVAL, check.name, check.value, check.rule, check.bound);
    }
  }
  if (qp.init.type == QpType::UD) {
    return Status::success();
  }
  Status status;
  if ((mask & kQpAv) != 0) {
    status = check_ah(attr.ah_attr);
  }
  if (status.ok() && (mask & kQpAltPath) != 0) {
    status = check_ah(attr.alt_ah_attr);
  }
  return status;
}

Status Adapter::modify_qp(std::uint32_t qpn, const QpAttr& attr, std::uint32_t mask,
                          std::uint64_t now_ns) {
  State& s = *state_;
  s.set_time(now_ns);
  QueuePair* qp = s.qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  if (const std::uint32_t unknown = mask >> 21 << 21; unknown != 0) {
    return refuse(EINVAL, "attr_mask", unknown, "has bits that are no QP attribute");
  }
  const bool stops = attr.qp_state == QpState::RESET || attr.qp_state == QpState::ERR;
  if (s.failed && !((mask & kQpState) != 0 && stops)) {
    return refuse(EIO, "device", 0, "has failed for good: close it");
  }
  if (Status status = s.check_attributes(*qp, attr, mask); !status.ok()) {
    return status;
  }
  if ((mask & kQpState) != 0 && stops) {
    s.settle_debts(*qp);
  }
  const bool has_av = (mask & kQpAv) != 0 && attr.ah_attr.sgid_index < s.config.gids.size();
  const Route route = has_av ? s.route_to(attr.ah_attr, qpn) : Route{};
  const bool has_pkey = (mask & kQpPkeyIndex) != 0;
  const std::uint16_t pkey = has_pkey ? s.config.pkeys[attr.pkey_index] : std::uint16_t{0xffff};
  const Status status = qp->modify(attr, mask, route, pkey);
  if (status.ok() && (mask & kQpAv) != 0 && qp->init.type != QpType::UD) {
    qp->local = s.path_of(route);
  }
  if (status.ok() && (mask & kQpAltPath) != 0 && qp->init.type != QpType::UD) {
    qp->migration.load(s.route_to(attr.alt_ah_attr, qpn), s.config.pkeys[attr.alt_pkey_index]);
  }
  if (status.ok() && qp->state() == QpState::ERR && qp->sq.source() != nullptr) {
    // Its doorbell came too early to be answered, and who waits for the flush rings no other.
    s.take_fed(*qp);
  }
  if (qp->deadline_ns() == kNever) {
    s.timers.forget(qpn);
  } else {
    s.timers.update(*qp);
  }
  s.settle_overflows();
  return status;
}

Result<QpAttr> Adapter::query_qp(std::uint32_t qpn, QpInit& init) const {
  const QueuePair* qp = state_->qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  init = qp->init;
  return qp->query();
}

Status Adapter::State::post_to(QueuePair& qp, const SendWr& wr, std::uint64_t cqe) {
  static const Route nowhere;
  if (qp.init.type != QpType::UD) {
    return qp.post_send(wr, nowhere, true, cqe);
  }
  const AddressHandle* ah = ahs.find(wr.ah);
  const bool ah_ok = ah != nullptr && ah->pd == qp.init.pd;
  return qp.post_send(wr, ah_ok ? route_to(ah->attr, qp.qpn) : nowhere, ah_ok, cqe);
}

Status Adapter::post_send(std::uint32_t qpn, std::span<const SendWr* const> wrs,
                          std::size_t& posted, std::uint64_t now_ns,
                          std::span<const std::uint64_t> cqes) {
  State& s = *state_;
  s.set_time(now_ns);
  posted = 0;
  QueuePair* qp = s.qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  s.posted_to.fetch(*qp);
  if (qp->sq.source() != nullptr) {
    return refuse(EINVAL, "qp", qpn, "is posted to through its mapped send queue");
  }
  Status status = Status::success();
  while (status.ok() && posted < wrs.size()) {
    const std::span<const std::uint64_t> numbers = cqes.empty() ? cqes : cqes.subspan(posted);
    posted += s.post_short(*qp, wrs.subspan(posted), numbers);
    if (posted == wrs.size()) break;
    status = s.post_to(*qp, *wrs[posted], cqes.empty() ? 0 : cqes[posted]);
    posted += status.ok() ? 1 : 0;
  }
  s.settle_overflows();
  return status;
}

Status Adapter::post_recv(std::uint32_t qpn, std::span<const RecvWr* const> wrs,
                          std::size_t& posted, std::uint64_t now_ns,
                          std::span<const std::uint64_t> cqes) {
  State& s = *state_;
  s.set_time(now_ns);
  posted = 0;
  QueuePair* qp = s.qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  if (qp->rq.source() != nullptr) {
    return refuse(EINVAL, "qp", qpn, "is posted to through its mapped receive queue");
  }
  const Status status = wrs.empty() ? Status::success() : qp->post_recv(wrs, cqes, posted);
  s.settle_overflows();
  return status;
}

// --- multicast
// ----------------------------------------------------------------------------------------------------------

Result<bool> Adapter::attach_mcast(std::uint32_t qpn, const Gid& gid) {
  State& s = *state_;
  QueuePair* qp = s.qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  if (qp->init.type != QpType::UD) {
    return refuse(EINVAL, "qp_type", static_cast<std::uint64_t>(qp->init.type),
                  "only UD queue pairs join multicast groups");
  }
  if (!gid.is_multicast()) {
    return refuse(EINVAL, "gid", gid.raw[15], "is no multicast address");
  }
  const auto found = s.multicast.find(gid.raw);
  if (found == s.multicast.end() && s.multicast.size() >= s.config.limits.max_mcast_grp) {
    return refuse(ENOMEM, "max_mcast_grp", s.multicast.size(), "groups are joined already");
  }
  auto& members = s.multicast[gid.raw];
  if (std::ranges::find(members, qpn) != members.end()) {
    return false;
  }
  if (members.size() >= s.config.limits.max_mcast_qp_attach) {
    return refuse(ENOMEM, "max_mcast_qp_attach", members.size(),
                  "queue pairs are attached already");
  }
  members.push_back(qpn);
  ++qp->multicast_groups;
  return true;
}

Status Adapter::detach_mcast(std::uint32_t qpn, const Gid& gid) {
  State& s = *state_;
  QueuePair* qp = s.qps.find(qpn);
  if (qp == nullptr) {
    return no_such("qp", qpn);
  }
  const auto found = s.multicast.find(gid.raw);
  if (found == s.multicast.end() || std::erase(found->second, qpn) == 0) {
    return refuse(EINVAL, "gid", gid.raw[15], "the queue pair is not attached to this group");
  }
  if (found->second.empty()) {
    s.multicast.erase(found);
  }
  --qp->multicast_groups;
  return Status::success();
}

}  // namespace softhca
