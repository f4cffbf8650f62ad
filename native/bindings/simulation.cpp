// The sans-IO surface itself: packets and time by hand; and what happens to a port, by order.
#include <vector>

#include "bindings/module.hpp"
#include "bindings/refusal.hpp"
#include "bindings/verb.hpp"

namespace softhca {
namespace {

// What next_packet() gave, with bytes of its own.
struct SentPacket {
  OutgoingPacket packet;
  nb::bytes datagram;
};

std::optional<SentPacket> next_packet(Hca& hca, std::uint64_t now_ns) {
  std::vector<std::uint8_t> buffer(kMaxDatagramBytes);
  OutgoingPacket packet;
  const bool sent = demand(hca.call_at(now_ns, [&](Adapter& adapter, std::uint64_t now) {
    return Result(adapter.next_packet(buffer, packet, now));
  }));
  if (!sent) return std::nullopt;
  nb::bytes datagram = bytes_of(packet.datagram);
  packet.datagram = {};
  return SentPacket{packet, std::move(datagram)};
}

void bind_reports(nb::module_& module) {
  nb::class_<ReceiveReport>(module, "ReceiveReport", "What an adapter made of a packet.")
      .def_ro("qpn", &ReceiveReport::qpn)
      .def_prop_ro("wr_id",
                   [](const ReceiveReport& self) {
                     return self.has_wr ? std::optional(self.wr_id) : std::nullopt;
                   })
      .def_ro("verdict", &ReceiveReport::verdict);
  nb::class_<SentPacket>(module, "SentPacket", "A packet that an adapter wants sent.")
      .def_prop_ro("route", [](const SentPacket& self) { return self.packet.route; })
      .def_ro("datagram", &SentPacket::datagram)
      .def_prop_ro("qpn", [](const SentPacket& self) { return self.packet.qpn; })
      .def_prop_ro("wr_id",
                   [](const SentPacket& self) {
                     return self.packet.has_wr ? std::optional(self.packet.wr_id) : std::nullopt;
                   })
      .def_prop_ro("retransmitted",
                   [](const SentPacket& self) { return self.packet.retransmitted; });
}

void bind_port(HcaClass& hca) {
  hca.def(
         "set_port_active",
         [](Hca& self, bool active) {
           demand(self.call([=](Adapter& adapter) {
             adapter.set_port_active(active);
             return Status::success();
           }));
         },
         nb::arg("active"))
      .def("set_gid", verb(&Adapter::set_gid), nb::arg("index"), nb::arg("gid"))
      .def("fail_device", [](Hca& self) {
        demand(self.call([](Adapter& adapter) {
          adapter.fail_device();
          return Status::success();
        }));
      });
}

}  // namespace

void bind_simulation(nb::module_& module, HcaClass& hca) {
  bind_reports(module);
  bind_port(hca);
  hca.def(
         "receive",
         [](Hca& self, const Route& route, const nb::bytes& datagram, std::uint64_t now_ns) {
           return demand(self.call_at(now_ns, [&](Adapter& adapter, std::uint64_t now) {
             return Result(adapter.receive(route, view_of(datagram), now));
           }));
         },
         nb::arg("route"), nb::arg("datagram"), nb::arg("now_ns"))
      .def("next_packet", &next_packet, nb::arg("now_ns"))
      .def_prop_ro("next_deadline_ns",
                   [](Hca& self) -> std::optional<std::uint64_t> {
                     const std::uint64_t deadline = demand(self.call(
                         [](Adapter& adapter) { return Result(adapter.next_deadline_ns()); }));
                     return deadline == kNever ? std::nullopt : std::optional(deadline);
                   })
      .def(
          "advance",
          [](Hca& self, std::uint64_t now_ns) {
            demand(self.call_at(now_ns, [](Adapter& adapter, std::uint64_t now) {
              adapter.advance(now);
              return Status::success();
            }));
          },
          nb::arg("now_ns"));
}

}  // namespace softhca
