// What differs for datagrams: a Q_Key instead of a connection, forty bytes of GRH in front, and
// silence about every fault (IBTA Vol 1, 9.8.3; 10.2.5).

#include <algorithm>
#include <array>

#include "transport/queue_pair.hpp"
#include "transport/responder.hpp"
#include "wire/ip.hpp"

namespace softhca {

void Responder::on_datagram(const Packet& packet, const Route& from, std::size_t datagram_bytes) {
  if (packet.deth.qkey != qp_.attr.qkey) {
    qp_.count(&Counters::qkey_viol_cntr);
    return;
  }
  if (packet.payload.size() > qp_.mtu()) {
    qp_.count(&Counters::dropped_pkts);
    return;
  }
  if (!has_receive_ && !take_receive(packet)) {
    return;
  }
  // A message that does not fit leaves the receive to the next one, and nobody is told (class D),
  // unless it is one of a shared queue (class E).
  if (const std::uint64_t bytes = kGrhBytes + packet.payload.size();
      bytes > receive_.capacity_bytes) {
    qp_.count(&Counters::resp_local_length_error);
    drop_message(WcStatus::LOC_LEN_ERR, {Reason::TOO_LONG, 0, 0, bytes});
    return;
  }
  qp_.count(&Counters::rx_send_requests);
  std::array<std::uint8_t, kGrhBytes> grh;
  encode_grh(from, datagram_bytes, grh.data());
  MemoryTable& memory = qp_.services.memory;
  AccessFault fault = memory.scatter(receive_pd_, receive_.sges, 0, ByteView(grh));
  if (fault.ok()) {
    fault = memory.scatter(receive_pd_, receive_.sges, kGrhBytes, packet.payload);
  }
  if (!fault.ok()) {
    fail_receive(WcStatus::LOC_PROT_ERR, fault);
    qp_.enter_error();
    return;
  }
  datagram_ip_version_ = from.is_ipv4() ? 4 : 6;
  message_bytes_ = static_cast<std::uint32_t>(kGrhBytes + packet.payload.size());
  complete_receive(packet);
}

}  // namespace softhca
