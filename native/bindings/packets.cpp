#include <array>
#include <utility>
#include <vector>

#include "bindings/module.hpp"
#include "vocabulary/own_ports.hpp"
#include "wire/crc32.hpp"
#include "wire/icrc.hpp"
#include "wire/ip.hpp"
#include "wire/opcode.hpp"
#include "wire/packet.hpp"
#include "wire/syndrome.hpp"

namespace softhca {
namespace {

// A packet that owns its payload, so that it outlives the bytes it was decoded from.
struct OwnedPacket {
  Packet packet;
  std::vector<std::uint8_t> payload;
  const char* problem = "";  // Name of the DecodeStatus; empty if the packet is sound.
};

OwnedPacket decode(const nb::bytes& datagram) {
  OwnedPacket out;
  const DecodeStatus status = decode_packet(view_of(datagram), out.packet);
  if (status == DecodeStatus::OK) {
    out.payload.assign(out.packet.payload.begin(), out.packet.payload.end());
  } else {
    out.problem = decode_status_name(status);
  }
  out.packet.payload = {};
  return out;
}

nb::bytes encode(const OwnedPacket& packet, const Route& route) {
  std::vector<std::uint8_t> out(64 + packet.payload.size() + 3 + kIcrcBytes);
  const std::size_t headers = encode_headers(packet.packet, {out.data(), 64});
  std::copy(packet.payload.begin(), packet.payload.end(), out.begin() + headers);
  const std::size_t transport = headers + packet.payload.size() + packet.packet.bth.pad_count;
  append_icrc(route, {out.data(), transport});
  return bytes_of({out.data(), transport + kIcrcBytes});
}

const char* opcode_name(std::uint8_t opcode) {
  const char* name = opcode_info(opcode).name;
  return name != nullptr ? name : "RESERVED";
}

// Names of the extended headers, in the order of the wire.
nb::list header_names(std::uint8_t opcode) {
  constexpr std::pair<std::uint32_t, const char*> kHeaders[] = {
      {kHasDeth, "DETH"},           {kHasXrcEth, "XRCETH"},
      {kHasFeth, "FETH"},           {kHasReth, "RETH"},
      {kHasAtomicEth, "AtomicETH"}, {kHasMaskEth, "MaskETH"},
      {kHasAeth, "AETH"},           {kHasAtomicAckEth, "AtomicAckETH"},
      {kHasImmDt, "ImmDt"},         {kHasIeth, "IETH"}};
  nb::list out;
  for (const auto& [flag, name] : kHeaders) {
    if (opcode_info(opcode).has(flag)) out.append(name);
  }
  return out;
}

// A member of the packet's headers as an attribute that reads and writes.
#define FIELD(name, member)                                               \
  .def_prop_rw(                                                           \
      name, [](const OwnedPacket& self) { return self.packet.member; },   \
      [](OwnedPacket& self, decltype(OwnedPacket::packet.member) value) { \
        self.packet.member = value;                                       \
      })

void bind_packet(nb::module_& module) {
  nb::class_<OwnedPacket>(module, "Packet", "The headers behind UDP, and the payload.")
      .def(nb::init<>())
      .def_ro("problem", &OwnedPacket::problem)
      .def_prop_ro("opcode_name",
                   [](const OwnedPacket& self) { return opcode_name(self.packet.bth.opcode); })
      .def_prop_ro(
          "headers", [](const OwnedPacket& self) { return header_names(self.packet.bth.opcode); },
          nb::sig("def headers(self) -> list[str]"))
      // clang-format off
      FIELD("opcode", bth.opcode)
      FIELD("solicited", bth.solicited)
      FIELD("migrated", bth.migrated)
      FIELD("pad_count", bth.pad_count)
      FIELD("version", bth.version)
      FIELD("pkey", bth.pkey)
      FIELD("fecn", bth.fecn)
      FIELD("becn", bth.becn)
      FIELD("destination_qpn", bth.destination_qpn)
      FIELD("ack_request", bth.ack_request)
      FIELD("psn", bth.psn)
      FIELD("qkey", deth.qkey)
      FIELD("source_qpn", deth.source_qpn)
      FIELD("virtual_address", reth.virtual_address)
      FIELD("rkey", reth.rkey)
      FIELD("dma_length", reth.length)
      FIELD("syndrome", aeth.syndrome)
      FIELD("msn", aeth.msn)
      FIELD("atomic_address", atomic.virtual_address)
      FIELD("atomic_rkey", atomic.rkey)
      FIELD("swap_add", atomic.swap_add)
      FIELD("compare", atomic.compare)
      FIELD("compare_mask", atomic.compare_mask)
      FIELD("swap_mask", atomic.swap_mask)
      FIELD("placement_type", feth.placement_type)
      FIELD("selectivity", feth.selectivity)
      FIELD("atomic_original", atomic_original)
      FIELD("immediate", immediate)
      FIELD("invalidate_rkey", invalidate_rkey)
      FIELD("xrc_srqn", xrc_srqn)
      // clang-format on
      .def_prop_rw(
          "payload", [](const OwnedPacket& self) { return bytes_of(self.payload); },
          [](OwnedPacket& self, const nb::bytes& payload) {
            const ByteView view = view_of(payload);
            self.payload.assign(view.begin(), view.end());
            self.packet.bth.pad_count = static_cast<std::uint8_t>(-view.size() & 3);
          },
          "Setting it sets the pad count.")
      .def_static("decode", &decode, nb::arg("datagram"))
      .def("encode", &encode, nb::arg("route"), "The datagram, ICRC included.");
}

#undef FIELD

void bind_route(nb::module_& module) {
  nb::class_<Route>(module, "Route", "The IP and UDP headers around a datagram.")
      .def(
          "__init__",
          [](Route* self, const Gid& source, const Gid& destination, std::uint16_t port,
             std::uint16_t identification, std::uint8_t traffic_class, std::uint8_t hop_limit,
             std::uint32_t flow_label) {
            new (self) Route{.source = source,
                             .destination = destination,
                             .udp_source_port = port,
                             .identification = identification,
                             .traffic_class = traffic_class,
                             .hop_limit = hop_limit,
                             .flow_label = flow_label};
          },
          nb::arg("source"), nb::arg("destination"), nb::kw_only(),
          nb::arg("udp_source_port") = 0xc000, nb::arg("identification") = 0,
          nb::arg("traffic_class") = 0, nb::arg("hop_limit") = 64, nb::arg("flow_label") = 0)
      .def_ro("source", &Route::source)
      .def_ro("destination", &Route::destination)
      .def_ro("udp_source_port", &Route::udp_source_port)
      .def_ro("udp_destination_port", &Route::udp_destination_port)
      .def_ro("identification", &Route::identification)
      .def_ro("traffic_class", &Route::traffic_class)
      .def_ro("hop_limit", &Route::hop_limit)
      .def_ro("flow_label", &Route::flow_label);
  module.def(
      "own_port", [](const Gid& gid, unsigned place) { return own_port(gid, place % kOwnPorts); },
      nb::arg("gid"), nb::arg("place") = 0,
      "One of the source ports by which adapters of our kind know who has this address.");
}

void bind_icrc(nb::module_& module) {
  nb::enum_<IcrcLevel>(module, "IcrcLevel", nb::is_arithmetic(), "How much of an ICRC is demanded.")
      .value("STRICT", IcrcLevel::STRICT)
      .value("SOLVE", IcrcLevel::SOLVE)
      .value("OFF", IcrcLevel::OFF);
  nb::class_<IcrcVerdict>(module, "IcrcVerdict")
      .def_ro("good", &IcrcVerdict::good)
      .def_ro("solved", &IcrcVerdict::solved)
      .def_ro("identification", &IcrcVerdict::identification)
      .def_ro("dont_fragment", &IcrcVerdict::dont_fragment);
  module.def(
      "icrc_of",
      [](const Route& route, const nb::bytes& transport) {
        return icrc_of(route, view_of(transport));
      },
      nb::arg("route"), nb::arg("transport"), "ICRC of BTH to pad, without the ICRC itself.");
  module.def(
      "check_icrc",
      [](const Route& route, const nb::bytes& datagram, IcrcLevel level) {
        return check_icrc(route, view_of(datagram), level);
      },
      nb::arg("route"), nb::arg("datagram"), nb::arg("level"), "Checks BTH to ICRC.");
  module.def(
      "crc32", [](const nb::bytes& bytes, std::uint32_t crc) { return crc32(crc, view_of(bytes)); },
      nb::arg("bytes"), nb::arg("crc") = 0, "CRC-32 of Ethernet, in zlib's convention.");
  module.def(
      "crc32_by_table",
      [](const nb::bytes& bytes, std::uint32_t crc) { return crc32_by_table(crc, view_of(bytes)); },
      nb::arg("bytes"), nb::arg("crc") = 0, "The same, by tables alone.");
  module.def("crc32_routine", &crc32_routine, "Name of the routine that crc32 uses on this CPU.");
}

void bind_ip(nb::module_& module) {
  module.def(
      "encode_ip_udp",
      [](const Route& route, std::size_t datagram_bytes, std::optional<nb::bytes> datagram) {
        std::array<std::uint8_t, 48> out{};
        const ByteSpan headers(out.data(), encode_ip_udp(route, datagram_bytes, out));
        if (datagram && !route.is_ipv4()) store_udp_checksum(headers, view_of(*datagram));
        return bytes_of(headers);
      },
      nb::arg("route"), nb::arg("datagram_bytes"), nb::arg("datagram") = nb::none(),
      "IP and UDP headers for so many bytes; over IPv6 with the UDP checksum, if they are given.");
  module.def(
      "encode_grh",
      [](const Route& route, std::size_t datagram_bytes) {
        std::array<std::uint8_t, kGrhBytes> out{};
        encode_grh(route, datagram_bytes, out.data());
        return bytes_of(out);
      },
      nb::arg("route"), nb::arg("datagram_bytes"), "The 40 bytes in front of a UD payload.");
  module.def(
      "parse_ip_udp",
      [](const nb::bytes& packet) -> std::optional<std::tuple<Route, nb::bytes, bool>> {
        IpUdpView view;
        if (!parse_ip_udp(view_of(packet), view)) return std::nullopt;
        return std::tuple(view.route, bytes_of(view.datagram), view.dont_fragment);
      },
      nb::arg("packet"), "(route, datagram, don't fragment) of an IP packet; None if not UDP.");
}

}  // namespace

void bind_packets(nb::module_& module) {
  bind_route(module);
  bind_packet(module);
  bind_icrc(module);
  bind_ip(module);
  module.def("opcode_name", &opcode_name, nb::arg("opcode"));
  module.def("header_names", &header_names, nb::arg("opcode"),
             nb::sig("def header_names(opcode: int) -> list[str]"));
  module.def("rnr_delay_ns", &rnr_delay_ns, nb::arg("timer_code"));
}

}  // namespace softhca
