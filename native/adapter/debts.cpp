// What queue pairs owe their peers for requests that they have executed. Their owner may have seen
// the completions already, and be done with a queue pair before the engine has sent the
// acknowledgement: an adapter in hardware would have sent it by then.

#include <algorithm>

#include "adapter/state.hpp"

namespace softhca {
namespace {

// Of queue pairs that are gone, as long as the wire takes nothing.
constexpr std::size_t kMostFarewells = 4096;

}  // namespace

// Before it falls silent. READs are not answered to their end: nobody here knows of them.
void Adapter::State::settle_debts(QueuePair& qp) {
  Responder& responder = qp.responder;
  responder.acknowledge_now();
  while (responder.owes_one_packet()) {
    if (qp.local != nullptr) {
      Outlet outlet{.buffer = leaving_bytes, .local = &leaving};
      if (!qp.local->has_room() || !responder.next_packet(outlet)) return;
      if (port_active) qp.local->send(leaving);
    } else {
      if (farewells.size() >= kMostFarewells) return;
      Farewell& farewell = farewells.emplace_back();
      Outlet outlet{.buffer = farewell.bytes, .wire = &farewell.packet};
      if (!responder.next_packet(outlet)) {
        farewells.pop_back();
        return;
      }
    }
  }
}

// A packet of a queue pair that has fallen silent. False: there is none.
bool Adapter::State::take_farewell(ByteSpan buffer, OutgoingPacket& out) {
  if (farewells.empty()) return false;
  out = farewells.front().packet;
  std::ranges::copy(out.datagram, buffer.begin());
  out.datagram = buffer.first(out.datagram.size());
  farewells.pop_front();
  return true;
}

void Adapter::settle_debts(std::uint64_t now_ns) {
  State& s = *state_;
  s.set_time(now_ns);
  s.qps.for_each([&](QueuePair& qp) { s.settle_debts(qp); });
  s.settle_overflows();
}

}  // namespace softhca
