#include "adapter/state.hpp"

#include <algorithm>

#include "vocabulary/own_ports.hpp"

namespace softhca {
namespace {

std::uint32_t limit_or(std::uint32_t limit, std::uint32_t highest) {
  return std::min(limit, highest);
}

}  // namespace

Adapter::State::State(AdapterConfig adapter_config)
    : Services(memory_table, adapter_config.retry_early, adapter_config.active_mtu),
      config(std::move(adapter_config)),
      random(config.seed),
      memory_table(process_space(), random,
                   {limit_or(config.limits.max_mr, 0x7fffff),
                    limit_or(config.limits.max_mw, 0x7fffff), config.limits.max_mr_size}),
      pds(config.limits.max_pd),
      ahs(config.limits.max_ah),
      xrcds(config.limits.max_xrcd),
      cqs(config.limits.max_cq),
      srqs(config.limits.max_srq),
      qps(random, config.limits.max_qp),
      icrc_trust(config.seed),
      port_active(config.port_active) {
  congestion = config.congestion;
  lazy_acks = config.lazy_acks;
  heeds_fields = congestion.on();
}

void Adapter::State::complete(CompletionQueue& cq, Completion& completion) {
  ++activity;
  // The bytes before the word that they are there.
  memory_table.write_behind.flush();
  if (observer != nullptr) {
    observer->completed(completion.qpn, completion.wr_id, completion.status, completion.byte_len,
                        completion.is_receive);
  }
  completion.timestamp_ns = cq.timestamps() ? time.now_ns() : 0;
  if (cq.quiet_room() > 0) {
    cq.quiet_slot() = completion;
    cq.quiet_push();
    return;
  }
  const std::uint64_t held_ns = cq.notify_deadline_ns();
  const CompletionQueue::Push outcome = cq.push(completion, time);
  // Who sleeps until something is solicited would never hear of it otherwise.
  const bool overflow_wakes = outcome == CompletionQueue::Push::OVERFLOW && cq.notify_now();
  if (cq.notify_deadline_ns() != held_ns) {
    held_back.erase({held_ns, cq.handle()});
    if (cq.notify_deadline_ns() != kNever) {
      held_back.insert({cq.notify_deadline_ns(), cq.handle()});
    }
  }
  switch (outcome) {
    case CompletionQueue::Push::ADDED_AND_NOTIFY:
      notify(cq);
      break;
    case CompletionQueue::Push::OVERFLOW:
      overflowed(cq, overflow_wakes);
      break;
    case CompletionQueue::Push::DISCARDED:
      // Who completes on a dead queue has been reset, or created, since it died.
      if (std::ranges::find(overflowed_cqs, cq.handle()) == overflowed_cqs.end()) {
        overflowed_cqs.push_back(cq.handle());
      }
      break;
    case CompletionQueue::Push::ADDED:
      break;
  }
}

void Adapter::State::overflowed(const CompletionQueue& cq, bool wakes) {
  if (wakes) {
    notify(cq);
  }
  raise(EventType::CQ_ERR, cq.handle());
  overflowed_cqs.push_back(cq.handle());
}

void Adapter::State::notify(const CompletionQueue& cq) {
  ++activity;
  if (cq.channel != 0) {
    untold = true;
    completion_events.push_back({cq.handle(), cq.channel});
  }
}

// Moderated CQs whose period is over.
void Adapter::State::release_held_back() {
  while (!held_back.empty() && held_back.begin()->first <= time.now_ns()) {
    CompletionQueue* cq = cqs.find(held_back.begin()->second);
    held_back.erase(held_back.begin());
    if (cq != nullptr && cq->notify_now()) {
      notify(*cq);
    }
  }
}

void Adapter::State::raise(EventType type, std::uint32_t object) {
  ++activity;
  if (observer != nullptr) {
    observer->raised(type, object);
  }
  async_events.push(type, object);
  untold = true;
}

void Adapter::State::schedule(QueuePair& qp) {
  using Listed = QueuePair::Listed;
  const Listed wanted = qp.local != nullptr ? Listed::FOR_PATH : Listed::FOR_WIRE;
  if (qp.listed != wanted) {
    qp.listed = wanted;
    (qp.local != nullptr ? ready_local : ready).push_back(qp.qpn);
  }
}

SharedReceiveQueue* Adapter::State::find_xrc_srq(std::uint32_t srqn, std::uint32_t xrcd) {
  SharedReceiveQueue* srq = srqs.find(srqn);
  return srq != nullptr && srq->xrcd == xrcd ? srq : nullptr;
}

// A target completes its receives on the CQs of its domain's shared receive queues.
bool Adapter::State::completes_through_xrc(const QueuePair& qp, const CompletionQueue& cq) {
  bool found = false;
  if (qp.init.type == QpType::XRC_RECV) {
    srqs.for_each([&](const SharedReceiveQueue& srq) {
      found = found || (srq.xrcd == qp.init.xrcd && srq.cq == cq.handle());
    });
  }
  return found;
}

void Adapter::State::settle_overflows() {
  while (!overflowed_cqs.empty()) {
    const CompletionQueue* cq = cqs.find(overflowed_cqs.back());
    overflowed_cqs.pop_back();
    if (cq == nullptr) {
      continue;
    }
    qps.for_each([&](QueuePair& qp) {
      const bool uses =
          qp.queues.send_cq == cq || qp.queues.recv_cq == cq || completes_through_xrc(qp, *cq);
      if (uses && qp.state() != QpState::RESET && qp.state() != QpState::ERR) {
        raise(EventType::QP_FATAL, qp.qpn);
        settle_debts(qp);
        qp.responder.silence();
        qp.enter_error();
      }
    });
  }
}

Route Adapter::State::route_to(const AhAttr& attr, std::uint32_t qpn) const {
  Route route;
  route.source = config.gids[attr.sgid_index];
  route.destination = attr.dgid;
  route.traffic_class = attr.traffic_class;
  if (congestion.on()) {
    route.traffic_class = static_cast<std::uint8_t>((attr.traffic_class & ~kEcnBits) | kEcnCapable);
  }
  // Applications often leave 0 or 1, which the kernel replaces by the route's; so do we.
  route.hop_limit = attr.hop_limit <= 1 ? 64 : attr.hop_limit;
  route.flow_label = attr.flow_label & 0xfffff;
  route.udp_source_port = source_port(qpn);
  return route;
}

std::uint16_t Adapter::State::source_port(std::uint32_t qpn) const {
  const auto& ports = config.udp_source_ports;
  return ports.empty() ? own_port(config.gids.front(), qpn % kOwnPorts) : ports[qpn % ports.size()];
}

Status Adapter::State::check_ah(const AhAttr& attr) const {
  if (!attr.is_global) {
    return refuse(EINVAL, "is_global", 0, "must be true: RoCE addresses by GID");
  }
  if (attr.port != 1) {
    return refuse(EINVAL, "port_num", attr.port, "must be 1, the only port");
  }
  if (attr.sgid_index >= config.gids.size() || config.gids[attr.sgid_index].is_zero()) {
    return refuse(EINVAL, "sgid_index", attr.sgid_index, "names no entry of the GID table");
  }
  if (attr.dgid.is_zero()) {
    return refuse(EINVAL, "dgid", 0, "must not be zero");
  }
  // The system takes it for this host, and the ICRC would be that of another destination.
  if (attr.dgid.is_unspecified()) {
    return refuse(EINVAL, "dgid", 0, "must not be 0.0.0.0");
  }
  if (attr.dgid.is_ipv4() != config.gids[attr.sgid_index].is_ipv4()) {
    return refuse(EINVAL, "dgid", attr.dgid.is_ipv4() ? 4 : 6,
                  "must be of the same IP version as the source GID");
  }
  if (attr.flow_label > 0xfffff) {
    return refuse(EINVAL, "flow_label", attr.flow_label, "has more than 20 bits");
  }
  return Status::success();
}

}  // namespace softhca
