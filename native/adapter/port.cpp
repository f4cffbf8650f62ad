// What happens to the port and to the device as a whole.

#include "adapter/state.hpp"
#include "vocabulary/enums.hpp"

namespace softhca {
namespace {

constexpr std::uint32_t kOnlyPort = 1;
// Values of ib_port_state.
constexpr std::uint8_t kPortDown = 1;
constexpr std::uint8_t kPortActive = 4;

}  // namespace

PortAttr Adapter::query_port() const {
  const State& s = *state_;
  PortAttr attr;
  attr.state = s.port_active ? kPortActive : kPortDown;
  attr.active_mtu = s.config.active_mtu;
  attr.gid_tbl_len = s.config.limits.gid_table_len;
  attr.pkey_tbl_len = static_cast<std::uint16_t>(s.config.pkeys.size());
  attr.max_msg_sz = s.config.limits.max_msg_sz;
  attr.bad_pkey_cntr = static_cast<std::uint32_t>(s.counters.bad_pkey_cntr);
  attr.qkey_viol_cntr = static_cast<std::uint32_t>(s.counters.qkey_viol_cntr);
  return attr;
}

void Adapter::set_port_active(bool active) {
  State& s = *state_;
  if (s.failed || s.port_active == active) return;
  s.port_active = active;
  s.raise(active ? EventType::PORT_ACTIVE : EventType::PORT_ERR, kOnlyPort);
}

void Adapter::set_active_mtu(std::uint8_t active_mtu) {
  State& s = *state_;
  s.config.active_mtu = s.active_mtu = active_mtu;
  s.qps.for_each([active_mtu](QueuePair& qp) {
    if (qp.init.type == QpType::UD) qp.attr.path_mtu = active_mtu;
  });
}

Status Adapter::set_gid(std::uint32_t index, const Gid& gid) {
  State& s = *state_;
  if (index >= s.config.gids.size()) {
    return refuse(EINVAL, "index", index, "names no entry of the GID table");
  }
  if (s.config.gids[index] == gid) return Status::success();
  s.config.gids[index] = gid;
  // Who shares memory with us knows us by the address that we had.
  s.qps.for_each([&](QueuePair& qp) {
    qp.recall_payloads();
    s.leave_path(qp);
  });
  s.raise(EventType::GID_CHANGE, kOnlyPort);
  return Status::success();
}

void Adapter::fail_device() {
  State& s = *state_;
  if (s.failed) return;
  s.failed = true;
  s.port_active = false;
  s.raise(EventType::DEVICE_FATAL, 0);
  s.qps.for_each([](QueuePair& qp) {
    if (qp.state() == QpState::RESET || qp.state() == QpState::ERR) return;
    qp.responder.silence();
    qp.enter_error();
  });
  s.settle_overflows();
}

}  // namespace softhca
