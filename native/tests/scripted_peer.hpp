// One connected queue pair whose peer is the test: packets in by hand, packets out as values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"
#include "vocabulary/own_ports.hpp"
#include "wire/icrc.hpp"
#include "wire/syndrome.hpp"

namespace softhca::testing {

struct ScriptedPeer : Pair {
  static constexpr std::uint32_t kPsnHere = 0xfffffa;   // First PSN of the adapter's requests.
  static constexpr std::uint32_t kPsnThere = 0xfffffc;  // First PSN of the peer's requests.
  static constexpr std::uint32_t kPeerQpn = 0x77;

  struct Sent {
    Operation operation;
    std::uint32_t psn;
    std::uint8_t syndrome;
    std::size_t payload_bytes;
    Packet packet;  // Without its payload.
    friend bool operator==(const Sent& a, const Sent& b) {
      return a.operation == b.operation && a.psn == b.psn;
    }
  };

  std::uint32_t qpn;
  std::vector<std::uint8_t> memory;
  MrInfo mr;
  std::uint16_t port = own_port(b.adapter->config().gids[0], 0);  // That the peer sends from.

  explicit ScriptedPeer(QpType type = QpType::RC, std::uint8_t mtu_code = 1, bool lazy_acks = false)
      : Pair(seed(), lazy_acks), qpn(a.qp(type)), memory(1 << 16), mr(a.reg(memory)) {
    CHECK(connect(true, qpn, type, kPeerQpn, kPsnHere, kPsnThere, mtu_code).ok());
  }

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
  }
  SendWr wr(WrOpcode opcode, std::uint32_t length, std::uint64_t wr_id = 0) const {
    SendWr made;
    made.wr_id = wr_id;
    made.opcode = opcode;
    made.send_flags = kSendSignaled;
    made.remote_address = 0x1000;
    made.rkey = 0x500;
    made.sges = {{address(), length, mr.lkey}};
    return made;
  }
  void post(const SendWr& request) { CHECK(send(true, qpn, request).ok()); }
  void receive(std::uint32_t length, std::uint64_t wr_id = 0) {
    RecvWr request;
    request.wr_id = wr_id;
    request.sges = {{address(), length, mr.lkey}};
    CHECK(recv(true, qpn, request).ok());
  }

  Packet packet(Operation operation, std::uint32_t psn) const {
    Packet made;
    made.bth.opcode = make_opcode(OpcodeTransport::RC, operation);
    made.bth.psn = psn & 0xffffff;
    made.bth.destination_qpn = qpn;
    made.bth.ack_request = true;
    made.info = &opcode_info(made.bth.opcode);
    made.reth = {address(), mr.rkey, 0};
    made.atomic = {address(), mr.rkey, 1, 0};
    made.aeth.syndrome = kSyndromeAck;
    return made;
  }
  void inject(Packet one, std::size_t payload_bytes = 0) {
    std::array<std::uint8_t, kMaxDatagramBytes> buffer{};
    one.bth.pad_count = static_cast<std::uint8_t>(-payload_bytes & 3);
    const std::size_t end = encode_headers(one, buffer) + payload_bytes + one.bth.pad_count;
    Route route;
    route.udp_source_port = port;
    route.source = b.adapter->config().gids[0];
    route.destination = a.adapter->config().gids[0];
    append_icrc(route, ByteSpan(buffer).first(end));
    CHECK(a.adapter->receive(route, ByteView(buffer).first(end + kIcrcBytes), now_ns).qpn == qpn);
  }
  void request(Operation operation, std::uint32_t psn, std::uint32_t length = 0) {
    Packet one = packet(operation, psn);
    one.reth.length = length;
    inject(one, one.info->has(kHasPayload) ? length : 0);
  }
  void answer(std::uint8_t syndrome, std::uint32_t psn) {
    Packet one = packet(Operation::ACKNOWLEDGE, psn);
    one.aeth.syndrome = syndrome;
    inject(one);
  }
  void read(std::uint32_t psn, std::uint32_t length) {
    request(Operation::RDMA_READ_REQUEST, psn, length);
  }

  // What the adapter sends now, at most so many packets.
  std::vector<Sent> take(std::size_t most = 1000) {
    std::vector<Sent> sent;
    std::array<std::uint8_t, kMaxDatagramBytes> buffer;
    OutgoingPacket out;
    while (sent.size() < most && a.adapter->next_packet(buffer, out, now_ns)) {
      Packet one;
      CHECK(decode_packet(out.datagram, one) == DecodeStatus::OK);
      const std::size_t payload_bytes = one.payload.size();
      one.payload = {};
      sent.push_back(
          {opcode_operation(one.bth.opcode), one.bth.psn, one.aeth.syndrome, payload_bytes, one});
    }
    return sent;
  }
  // Lets the next deadline pass.
  void wait() {
    now_ns = std::max(now_ns, a.adapter->next_deadline_ns());
    a.adapter->advance(now_ns);
  }
  QpAttr attributes() {
    QpInit init;
    return a.adapter->query_qp(qpn, init).value;
  }
  QpState state() { return attributes().qp_state; }
  Status modify(QpState to, std::uint32_t mask = 0, QpAttr attr = {}) {
    attr.qp_state = to;
    return a.adapter->modify_qp(qpn, attr, mask | kQpState, now_ns);
  }
  std::vector<EventType> events() {
    std::vector<EventType> seen;
    AsyncEvent event;
    while (a.adapter->next_event(event)) {
      seen.push_back(event.type);
    }
    return seen;
  }
};

}  // namespace softhca::testing
