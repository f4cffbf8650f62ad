// Modifying and querying a queue pair: everything is checked first, then everything is applied.

#include "transport/queue_pair.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

// Attributes that say how long the requester goes on trying, and where.
constexpr std::uint32_t kRetries = kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpAv;

}  // namespace

Status QueuePair::modify(const QpAttr& wanted, std::uint32_t mask, const Route& new_route,
                         std::uint16_t new_pkey) {
  if ((mask & kQpCurState) != 0) {
    const QpState claimed = wanted.cur_qp_state;
    if (claimed != state() || claimed == QpState::RESET || claimed == QpState::INIT ||
        claimed == QpState::ERR) {
      return refuse(EINVAL, "cur_qp_state", static_cast<std::uint64_t>(claimed),
                    "must be the present state, and one of RTR, RTS, SQD, SQE");
    }
  }
  const QpState to = (mask & kQpState) != 0 ? wanted.qp_state : state();
  if (Status status = check_transition(init.type, state(), to, mask); !status.ok()) {
    return status;
  }
  if (Status status = migration.check(wanted, mask); !status.ok()) {
    return status;
  }
  if (to == QpState::RESET) {
    to_reset();
    return Status::success();
  }
  if (to == QpState::ERR) {
    to_error_by_user();
    return Status::success();
  }
  const auto take = [&](std::uint32_t bit, auto QpAttr::*field) {
    if ((mask & bit) != 0) {
      attr.*field = wanted.*field;
    }
  };
  take(kQpAccessFlags, &QpAttr::qp_access_flags);
  take(kQpPkeyIndex, &QpAttr::pkey_index);
  take(kQpPort, &QpAttr::port_num);
  take(kQpQkey, &QpAttr::qkey);
  take(kQpAv, &QpAttr::ah_attr);
  take(kQpPathMtu, &QpAttr::path_mtu);
  take(kQpTimeout, &QpAttr::timeout);
  take(kQpRetryCnt, &QpAttr::retry_cnt);
  take(kQpRnrRetry, &QpAttr::rnr_retry);
  take(kQpMaxQpRdAtomic, &QpAttr::max_rd_atomic);
  take(kQpMaxDestRdAtomic, &QpAttr::max_dest_rd_atomic);
  take(kQpMinRnrTimer, &QpAttr::min_rnr_timer);
  take(kQpAltPath, &QpAttr::alt_ah_attr);
  take(kQpAltPath, &QpAttr::alt_pkey_index);
  take(kQpAltPath, &QpAttr::alt_port_num);
  take(kQpAltPath, &QpAttr::alt_timeout);
  if ((mask & kQpRqPsn) != 0) {
    attr.rq_psn = wanted.rq_psn & kPsnMask;
  }
  if ((mask & kQpSqPsn) != 0) {
    attr.sq_psn = wanted.sq_psn & kPsnMask;
  }
  if ((mask & kQpDestQpn) != 0) {
    attr.dest_qp_num = wanted.dest_qp_num & kPsnMask;
  }
  if ((mask & kQpAv) != 0) {
    route = new_route;
    local = nullptr;  // Until who knows the adapters of this host says otherwise.
    copies_payload = false;
    // Who is there has not been heard yet.
    heard_port = 0;
    peer_is_adapter = true;
  }
  if ((mask & kQpPkeyIndex) != 0) {
    pkey = new_pkey;
  }
  const QpState from = state();
  set_state(to);
  if (services.observer != nullptr && from == to) {
    tell_state(from);
  }
  if (to != QpState::SQD) {
    attr.sq_draining = false;
  }
  if (from == QpState::INIT && to == QpState::RTR) {
    if (init.type == QpType::UD) {
      attr.path_mtu = services.active_mtu;
    }
    responder.start();
  } else if (from == QpState::RTR && to == QpState::RTS) {
    requester.start();
  } else if (from == QpState::RTS && to == QpState::SQD) {
    attr.sq_draining = true;
    // The wish for an event holds for this drain alone.
    attr.en_sqd_async_notify = (mask & kQpEnSqdAsyncNotify) != 0 && wanted.en_sqd_async_notify;
    check_drained();
  } else {
    // Whatever else is modified gives a request that is being retried no new attempts.
    if ((mask & kRetries) != 0) {
      requester.configure();
    }
    if ((mask & kQpMaxDestRdAtomic) != 0) {
      responder.resize_resources();
    }
  }
  if ((mask & kQpPathMigState) != 0) {
    migration.command(wanted.path_mig_state);
  }
  services.schedule(*this);
  return Status::success();
}

QpAttr QueuePair::query() const {
  QpAttr now = attr;
  now.cur_qp_state = attr.qp_state;
  if (state() == QpState::RTS || state() == QpState::SQD || state() == QpState::SQE) {
    now.sq_psn = requester.sq_psn();
  }
  if (state() == QpState::RTR || state() == QpState::RTS || state() == QpState::SQD ||
      state() == QpState::SQE) {
    now.rq_psn = responder.rq_psn();
  }
  return now;
}

QpLoad QueuePair::load() const {
  QpLoad now;
  now.sends = sq.held();
  now.receives = rq.count() + (responder.fills_own_receive() ? 1 : 0);
  responder.add_load(now);
  return now;
}

// All queues empty, without completions; what already lies in a CQ stays there (IBTA Vol
// 1, 10.3.1.1).
void QueuePair::to_reset() {
  recall_payloads();
  sq.reset();
  rq.reset();
  requester.reset();
  responder.reset();
  migration.reset();
  if (congestion != nullptr) {
    congestion->reset();
  }
  set_state(QpState::RESET);
  attr.sq_draining = false;
  counters = {};  // The adapter's go on.
  // Another peer may come to this number, and must not find the windows of the last one.
  services.memory.release_windows_of(qpn);
}

void QueuePair::to_error_by_user() {
  responder.silence();
  enter_error();
}

}  // namespace softhca
