#include "transport/path_migration.hpp"

#include "transport/queue_pair.hpp"

namespace softhca {

void PathMigration::reset() {
  qp_.attr.path_mig_state = MigState::MIGRATED;
  loaded_ = false;
}

void PathMigration::load(const Route& route, std::uint16_t pkey) {
  route_ = route;
  pkey_ = pkey;
  loaded_ = true;
}

Status PathMigration::check(const QpAttr& wanted, std::uint32_t mask) const {
  if ((mask & kQpPathMigState) == 0) return Status::success();
  const auto value = static_cast<std::uint64_t>(wanted.path_mig_state);
  const bool loads = (mask & kQpAltPath) != 0;
  const char* rule = nullptr;
  switch (wanted.path_mig_state) {
    case MigState::MIGRATED:
      if (qp_.attr.path_mig_state == MigState::REARM) {
        rule = "must be ARMED before it can be MIGRATED";
      } else if (qp_.attr.path_mig_state == MigState::ARMED && loads) {
        rule = "cannot be MIGRATED by the call that loads another alternate path";
      }
      break;
    case MigState::REARM:
      if (!loads && !loaded_) rule = "cannot be REARM without an alternate path";
      break;
    case MigState::ARMED:
      rule = "becomes ARMED by itself, when both ends are in REARM";
      break;
  }
  return rule == nullptr ? Status::success() : refuse(EINVAL, "path_mig_state", value, rule);
}

void PathMigration::command(MigState wanted) {
  if (wanted == MigState::REARM) {
    qp_.attr.path_mig_state = MigState::REARM;
  } else if (qp_.attr.path_mig_state == MigState::ARMED) {
    migrate();
  }
}

bool PathMigration::request_bit() const { return qp_.attr.path_mig_state == MigState::MIGRATED; }

bool PathMigration::matches_alternate(const Packet& packet, const Route& from) const {
  return from.source == route_.destination && from.destination == route_.source &&
         pkeys_match(packet.bth.pkey, pkey_);
}

bool PathMigration::accept(const Packet& packet, const Route& from) {
  const bool from_peer =
      from.source == qp_.route.destination && from.destination == qp_.route.source;
  MigState& state = qp_.attr.path_mig_state;
  if (state == MigState::ARMED && packet.bth.migrated) {
    if (matches_alternate(packet, from)) {
      migrate();
      return true;
    }
    // The peer asks for a migration that its own packet does not fit.
    if (from_peer) qp_.services.raise(EventType::PATH_MIG_ERR, qp_.qpn);
    return false;
  }
  if (!from_peer) return false;
  if (state == MigState::REARM && !packet.bth.migrated && pkeys_match(packet.bth.pkey, qp_.pkey)) {
    state = MigState::ARMED;
  }
  return true;
}

bool PathMigration::escape() {
  if (qp_.attr.path_mig_state != MigState::ARMED) return false;
  migrate();
  return true;
}

void PathMigration::migrate() {
  QpAttr& attr = qp_.attr;
  attr.path_mig_state = MigState::MIGRATED;
  attr.ah_attr = attr.alt_ah_attr;
  attr.pkey_index = attr.alt_pkey_index;
  attr.port_num = attr.alt_ah_attr.port;
  attr.timeout = attr.alt_timeout;
  qp_.route = route_;
  qp_.local = nullptr;  // The other path is a network.
  qp_.pkey = pkey_;
  qp_.requester.configure();
  qp_.services.schedule(qp_);
  qp_.services.raise(EventType::PATH_MIG, qp_.qpn);
}

}  // namespace softhca
