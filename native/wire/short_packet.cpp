#include "wire/short_packet.hpp"

namespace softhca {

Packet packet_of(const ShortPacket& from) {
  Packet packet;
  packet.bth.opcode = from.opcode;
  packet.bth.solicited = from.solicited;
  packet.bth.migrated = from.migrated;
  packet.bth.pkey = from.pkey;
  packet.bth.destination_qpn = from.destination_qpn;
  packet.bth.ack_request = from.ack_request;
  packet.bth.psn = from.psn;
  packet.info = &opcode_info(from.opcode);
  packet.reth = from.reth;
  packet.immediate = from.immediate;
  packet.payload = from.payload;
  packet.psns = from.psns;
  return packet;
}

Packet packet_of(const PlainAcknowledge& from) {
  Packet packet;
  packet.bth.opcode = PlainAcknowledge::kOpcode;
  packet.bth.migrated = from.migrated;
  packet.bth.pkey = from.pkey;
  packet.bth.destination_qpn = from.destination_qpn;
  packet.bth.psn = from.psn;
  packet.info = &opcode_info(PlainAcknowledge::kOpcode);
  packet.aeth = {kSyndromeAck, from.msn};
  return packet;
}

Packet packet_of(const WholeAnswer& from) {
  Packet packet = packet_of(from.acknowledge);
  packet.bth.opcode = WholeAnswer::kOpcode;
  packet.info = &opcode_info(WholeAnswer::kOpcode);
  packet.payload = from.payload;
  packet.psns = from.psns;
  return packet;
}

bool short_form(const Packet& from, PlainAcknowledge& packet) {
  if (from.bth.opcode != PlainAcknowledge::kOpcode || from.bth.solicited || from.bth.ack_request ||
      from.aeth.syndrome != kSyndromeAck || from.psns != 1) {
    return false;
  }
  packet.migrated = from.bth.migrated;
  packet.pkey = from.bth.pkey;
  packet.destination_qpn = from.bth.destination_qpn;
  packet.psn = from.bth.psn;
  packet.msn = from.aeth.msn;
  return true;
}

bool short_form(const Packet& from, ShortPacket& packet) {
  if (!is_short_opcode(from.bth.opcode) || from.psns != 1 || !from.pieces.empty()) return false;
  packet.opcode = from.bth.opcode;
  packet.solicited = from.bth.solicited;
  packet.migrated = from.bth.migrated;
  packet.ack_request = from.bth.ack_request;
  packet.pkey = from.bth.pkey;
  packet.destination_qpn = from.bth.destination_qpn;
  packet.psn = from.bth.psn;
  packet.psns = 1;
  packet.immediate = from.immediate;
  packet.reth = from.reth;
  packet.payload = from.payload;
  return true;
}

}  // namespace softhca
