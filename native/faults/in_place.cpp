#include "faults/in_place.hpp"

#include <utility>

#include "wire/icrc.hpp"
#include "wire/opcode.hpp"
#include "wire/packet.hpp"

namespace softhca {
namespace {

constexpr std::size_t kMostHeaderBytes = 64;
// BTH with BECN set, and as many reserved bytes.
constexpr std::size_t kReservedBytes = 16;

PacketInPlace back_along(const Route& route, const Packet& packet, std::size_t more_bytes,
                         const Addressee& addressee) {
  PacketInPlace made;
  made.route = route;
  made.route.udp_source_port = addressee.udp_source_port;
  std::swap(made.route.source, made.route.destination);
  made.bytes.resize(kMostHeaderBytes + kIcrcBytes);
  const std::size_t headers = encode_headers(packet, ByteSpan(made.bytes).first(kMostHeaderBytes));
  made.bytes.resize(headers + more_bytes + kIcrcBytes);
  append_icrc(made.route, ByteSpan(made.bytes).first(headers + more_bytes));
  return made;
}

}  // namespace

bool can_be_refused(ByteView request, const Addressee& addressee) {
  return request.size() >= kBthBytes + kIcrcBytes && opcode_info(request[0]).has(kRequest) &&
         load_be24(&request[9]) == addressee.expected_psn;
}

PacketInPlace refusal_of(const Route& route, ByteView request, std::uint8_t syndrome,
                         const Addressee& addressee) {
  Packet nak;
  nak.bth.opcode = make_opcode(queue_pair_transport(request[0]), Operation::ACKNOWLEDGE);
  nak.bth.destination_qpn = addressee.peer_qpn;
  nak.bth.psn = addressee.expected_psn;
  nak.bth.pkey = load_be16(&request[2]);
  nak.aeth.syndrome = syndrome;
  return back_along(route, nak, 0, addressee);
}

PacketInPlace notification_of(const Route& route, ByteView packet, const Addressee& addressee) {
  Packet cnp;
  cnp.bth.opcode = kCnpOpcode;
  cnp.bth.becn = true;
  cnp.bth.destination_qpn = addressee.peer_qpn;
  cnp.bth.pkey = load_be16(&packet[2]);
  return back_along(route, cnp, kReservedBytes, addressee);
}

}  // namespace softhca
