// Automatic path migration (IBTA Vol 1, 17.2.8): a connection's second path, and the handshake that
// takes both ends to it.
//
//   MIGRATED --modify--> REARM --a packet without MigReq--> ARMED --modify, retries out, or a
//   packet with MigReq--> MIGRATED, on what was the alternate path
#pragma once

#include <cstdint>

#include "transport/attributes.hpp"
#include "vocabulary/route.hpp"
#include "vocabulary/status.hpp"
#include "wire/packet.hpp"

namespace softhca {

class QueuePair;

class PathMigration {
 public:
  explicit PathMigration(QueuePair& qp) : qp_(qp) {}

  void reset();
  // What attr.alt_ah_attr and attr.alt_pkey_index stand for.
  void load(const Route& route, std::uint16_t pkey);

  // Refuses what modify() may not command.
  Status check(const QpAttr& wanted, std::uint32_t mask) const;
  // Precondition: check() is content.
  void command(MigState wanted);

  // MigReq of what is sent.
  bool request_bit() const;
  // Is a packet from the peer of this connection, on a path that is in use? It may be what arms, or
  // what migrates. A packet that was overtaken since before the peer's REARM looks like one that
  // migrates; networks that keep order know none.
  bool accept(const Packet& packet, const Route& from);
  // The requester has no retry left. True: there is another path, which is taken.
  bool escape();

 private:
  void migrate();
  bool matches_alternate(const Packet& packet, const Route& from) const;

  QueuePair& qp_;
  bool loaded_ = false;
  Route route_;
  std::uint16_t pkey_ = 0xffff;
};

// P_Keys match when their low 15 bits do and at least one side is a full member (IBTA Vol 1,
// 10.9.3).
constexpr bool pkeys_match(std::uint16_t one, std::uint16_t other) {
  return ((one ^ other) & 0x7fff) == 0 && ((one | other) & 0x8000) != 0;
}

}  // namespace softhca
