// Packets on their way: links, queues, faults.
#include <algorithm>
#include <cstring>

#include "fabric/fabric.hpp"
#include "faults/in_place.hpp"
#include "wire/packet.hpp"

namespace softhca {
namespace {

// What a datagram takes on Ethernet besides itself: preamble, MAC header, FCS and gap; UDP and IP.
std::uint64_t wire_bytes(const Route& route, std::size_t datagram_bytes) {
  return datagram_bytes + 38 + (route.is_ipv4() ? 28 : 48);
}

// MTUs count the payload alone.
std::size_t payload_bytes(ByteView datagram) {
  const std::size_t around =
      opcode_info(datagram.empty() ? 0 : datagram[0]).header_bytes + kIcrcBytes;
  return datagram.size() > around ? datagram.size() - around : 0;
}

}  // namespace

std::uint32_t Fabric::take_flight() {
  ++flying_;
  if (spare_.empty()) {
    flights_.emplace_back();
    flights_.back().buffer = std::make_unique<std::uint8_t[]>(kMaxDatagramBytes);
    return static_cast<std::uint32_t>(flights_.size() - 1);
  }
  const std::uint32_t flight = spare_.back();
  spare_.pop_back();
  return flight;
}

void Fabric::free_flight(std::uint32_t flight) {
  --flying_;
  spare_.push_back(flight);
}

std::uint32_t Fabric::copy_flight(std::uint32_t from) {
  const std::uint32_t flight = take_flight();
  const Flight& original = flights_[from];
  Flight& copy = flights_[flight];
  std::memcpy(copy.buffer.get(), original.datagram.data(), original.datagram.size());
  copy.datagram = {copy.buffer.get(), original.datagram.size()};
  copy.route = original.route;
  copy.id = original.id;
  copy.source = original.source;
  copy.target = original.target;
  return flight;
}

void Fabric::lose(std::uint32_t flight, const char* why) {
  ++counters_.lost;
  trace_.add({.at_ns = now_ns(),
              .packet = flights_[flight].id,
              .kind = RecordKind::LOST,
              .text = trace_.on() ? trace_.word(why) : 0});
  free_flight(flight);
}

std::uint32_t Fabric::implied_lane(std::uint32_t from, std::uint32_t to) {
  const bool swapped = from > to;
  const std::uint64_t pair = std::uint64_t{std::min(from, to)} << 32 | std::max(from, to);
  const auto [found, is_new] = mesh_.try_emplace(pair, 0);
  if (is_new)
    found->second = topology_.connect(std::min(from, to), std::max(from, to), settings_.link);
  return found->second * 2 + (swapped ? 1 : 0);
}

std::uint64_t Fabric::forward(std::uint32_t node, std::uint32_t flight) {
  Flight& packet = flights_[flight];
  if (packet.target == node) {
    // To itself: no link, and so no fault of one.
    push(now_ns() + 1, What::ARRIVAL, node, flight);
    return now_ns();
  }
  std::uint32_t lane = 0;
  if (is_meshed_) {
    lane = implied_lane(node, packet.target);
  } else {
    lane = topology_.next_lane(node, packet.target, packet.route);
    if (lane == Topology::kNone) {
      lose(flight, "no way leads there");
      return now_ns();
    }
  }
  return cross(lane, flight);
}

std::uint64_t Fabric::cross(std::uint32_t lane, std::uint32_t flight) {
  if (!faults_.empty()) {
    if (!judge(lane, flight)) return topology_.lanes[lane].free_at_ns;
    const std::uint64_t delay_ns = verdict_.delay_ns;
    if (verdict_.overtakers != 0) {
      held_.push_back({flight, verdict_.overtakers, lane, delay_ns});
      return topology_.lanes[lane].free_at_ns;
    }
    transmit(lane, flight, delay_ns);
    if (!held_.empty()) pass_held(lane);
  } else {
    transmit(lane, flight, 0);
  }
  return topology_.lanes[lane].free_at_ns;
}

// Each packet that crosses lets held ones come nearer to their turn.
void Fabric::pass_held(std::uint32_t lane) {
  for (std::size_t i = 0; i < held_.size();) {
    if (held_[i].lane != lane || --held_[i].overtakers != 0) {
      ++i;
      continue;
    }
    const Held passed = held_[i];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    transmit(lane, passed.flight, passed.delay_ns);
  }
}

void Fabric::note_strikes(std::uint64_t packet) {
  for (const std::uint32_t struck : verdict_.struck) {
    const FaultRule& rule = faults_.rule(struck);
    trace_.add({.at_ns = now_ns(),
                .packet = packet,
                .b = struck,
                .kind = RecordKind::FAULT,
                .text = trace_.on() ? trace_.word(rule.name) : 0});
    if (rule.action == FaultAction::TELL) told_.push_back(struck);
  }
}

HostPair Fabric::hosts_of(const Flight& packet) const {
  const std::uint32_t target = host_of_node_[packet.target];
  return {packet.source == Topology::kNone ? -1 : static_cast<int>(packet.source),
          target == Topology::kNone ? -1 : static_cast<int>(target)};
}

void Fabric::ask_faults(const Route& route, ByteSpan& datagram, int link, FaultActions actions,
                        HostPair hosts) {
  verdict_.clear();
  try {
    faults_.judge(route, datagram, now_ns(), link, true, verdict_, actions, hosts);
  } catch (...) {
    if (!raised_) raised_ = std::current_exception();
  }
}

// False: the packet is gone, or scripted ones have taken its place.
bool Fabric::judge(std::uint32_t lane, std::uint32_t flight) {
  {
    // By value: a predicate may send, and move the packets around.
    const Route route = flights_[flight].route;
    ByteSpan datagram = flights_[flight].datagram;
    ask_faults(route, datagram, static_cast<int>(topology_.lanes[lane].link), ~kInPlace,
               hosts_of(flights_[flight]));
    flights_[flight].datagram = datagram;
  }
  note_strikes(flights_[flight].id);
  if (verdict_.marked) {
    flights_[flight].route.traffic_class |= kCongestionExperienced;
  }
  for (const std::uint64_t delay_ns : verdict_.copies)
    transmit(lane, copy_flight(flight), delay_ns);
  if (verdict_.cnp) send_cnp(flights_[flight]);
  for (const ScriptedDatagram& one : verdict_.scripted) {
    if (one.bytes.size() > kMaxDatagramBytes) continue;
    const std::uint32_t copy = copy_flight(flight);
    std::memcpy(flights_[copy].buffer.get(), one.bytes.data(), one.bytes.size());
    flights_[copy].datagram = {flights_[copy].buffer.get(), one.bytes.size()};
    transmit(lane, copy, one.delay_ns);
  }
  if (verdict_.dropped) {
    lose(flight, verdict_.scripted.empty() ? "fault" : "replaced by a script");
    return false;
  }
  return true;
}

bool Fabric::admit(Lane& lane, Flight& packet, std::uint64_t bytes) {
  const FabricLink& link = topology_.links[lane.link];
  const LinkShape& shape = link.shape;
  if (link.picoseconds_per_byte == 0) return true;
  const std::uint64_t queued = topology_.queued_bytes(lane, now_ns());
  lane.most_queued_bytes = std::max(lane.most_queued_bytes, queued);
  if (shape.queue_bytes != 0 && queued + bytes > shape.queue_bytes) {
    ++lane.overflows;
    return false;
  }
  const bool can_be_marked = (packet.route.traffic_class & 3) != 0;
  if (shape.mark_all_bytes != 0 && queued > shape.mark_from_bytes && can_be_marked) {
    const std::uint64_t span =
        std::max<std::uint64_t>(1, shape.mark_all_bytes - shape.mark_from_bytes);
    const double share =
        static_cast<double>(queued - shape.mark_from_bytes) / static_cast<double>(span);
    const double drawn = static_cast<double>(marking_.next() >> 11) * 0x1p-53;
    if (queued > shape.mark_all_bytes || drawn < share * shape.mark_probability) {
      packet.route.traffic_class |= kCongestionExperienced;
      ++lane.marked;
    }
  }
  return true;
}

void Fabric::transmit(std::uint32_t number, std::uint32_t flight, std::uint64_t delay_ns) {
  Lane& lane = topology_.lanes[number];
  const FabricLink& link = topology_.links[lane.link];
  Flight& packet = flights_[flight];
  const std::uint64_t bytes = wire_bytes(packet.route, packet.datagram.size());
  if (!link.up) {
    lose(flight, "the link is down");
    return;
  }
  if (payload_bytes(packet.datagram) > link.shape.mtu_bytes) {
    lose(flight, "longer than the link's MTU");
    return;
  }
  if (!admit(lane, packet, bytes)) {
    lose(flight, "the queue is full");
    return;
  }
  const std::uint64_t takes_ns = (bytes * link.picoseconds_per_byte + 999) / 1000;
  lane.free_at_ns = std::max(lane.free_at_ns, now_ns()) + takes_ns;
  ++lane.packets;
  lane.bytes += bytes;
  std::uint64_t arrives_ns = lane.free_at_ns + link.shape.latency_ns;
  if (settings_.jitter_ns != 0) arrives_ns = in_order(packet, arrives_ns);
  // A fault's delay is this packet's alone: those behind it in its flow need not wait.
  push(arrives_ns + delay_ns, What::ARRIVAL, lane.to, flight);
}

// Draws how much later a packet comes; those of one flow do not overtake each other.
std::uint64_t Fabric::in_order(const Flight& packet, std::uint64_t arrives_ns) {
  arrives_ns += jittering_.below(settings_.jitter_ns + 1);
  const std::uint64_t flow = std::uint64_t{packet.target} << 24 | load_be24(&packet.datagram[5]);
  std::uint64_t& last = last_arrivals_[flow];
  return last = std::max(last + 1, arrives_ns);
}

void Fabric::spread(std::uint32_t from, std::uint32_t flight) {
  // As on a network, whoever is a member gets it, its sender too; who is not one ignores it.
  for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
    const std::uint32_t copy = copy_flight(flight);
    flights_[copy].target = hosts_[i].node;
    forward(hosts_[from].node, copy);
  }
  free_flight(flight);
}

void Fabric::launch(std::uint32_t node, const Route& route, ByteView datagram,
                    std::uint64_t delay_ns) {
  const std::uint32_t target = host_of(route.destination);
  if (target == Topology::kNone || datagram.size() > kMaxDatagramBytes) return;
  const std::uint32_t flight = take_flight();
  Flight& packet = flights_[flight];
  std::memcpy(packet.buffer.get(), datagram.data(), datagram.size());
  packet.datagram = {packet.buffer.get(), datagram.size()};
  packet.route = route;
  packet.id = ++packets_;
  packet.target = hosts_[target].node;
  const std::uint32_t from = host_of(route.source);
  packet.source = from;
  trace_.add_sent({.at_ns = now_ns(),
                   .packet = packet.id,
                   .b = 2,
                   .kind = RecordKind::SENT,
                   .host = from == Topology::kNone ? 0 : from + 1},
                  route, packet.datagram);
  std::uint32_t lane = is_meshed_ && node != packet.target ? implied_lane(node, packet.target) : 0;
  if (!is_meshed_) lane = topology_.next_lane(node, packet.target, route);
  if (node == packet.target || lane == Topology::kNone) {
    push(now_ns() + delay_ns, What::ARRIVAL, packet.target, flight);
  } else {
    transmit(lane, flight, delay_ns);
  }
}

void Fabric::inject(const Route& route, ByteView datagram, std::uint64_t delay_ns) {
  const std::uint32_t from = host_of(route.source);
  const std::uint32_t target = host_of(route.destination);
  if (target == Topology::kNone) return;
  launch(from == Topology::kNone ? hosts_[target].node : hosts_[from].node, route, datagram,
         delay_ns);
}

bool Fabric::find_addressee(Host& host, ByteView packet, Addressee& addressee) {
  if (packet.size() < kBthBytes + kIcrcBytes || *host.port.closed) return false;
  QpInit init;
  const std::unique_lock lock(*host.port.mutex, std::try_to_lock);
  const Result<QpAttr> found = host.port.adapter->query_qp(load_be24(&packet[5]), init);
  const std::uint32_t qpn = load_be24(&packet[5]);
  addressee = {found.value.dest_qp_num, found.value.rq_psn, host.port.adapter->source_port(qpn)};
  return found.ok();
}

bool Fabric::answered(std::uint32_t number, std::uint32_t flight) {
  Host& host = hosts_[number];
  const Flight& request = flights_[flight];
  Addressee addressee;
  if (!find_addressee(host, request.datagram, addressee) ||
      !can_be_refused(request.datagram, addressee)) {
    return false;
  }
  ByteSpan datagram = request.datagram;
  ask_faults(request.route, datagram, -1, kInPlace, hosts_of(request));
  note_strikes(request.id);
  if (verdict_.answer < 0) return false;
  const PacketInPlace nak = refusal_of(request.route, request.datagram,
                                       static_cast<std::uint8_t>(verdict_.answer), addressee);
  lose(flight, "answered by a fault");
  launch(host.node, nak.route, nak.bytes, 0);
  return true;
}

void Fabric::send_cnp(const Flight& marked) {
  const std::uint32_t target = host_of(marked.route.destination);
  Addressee addressee;
  if (target == Topology::kNone || !find_addressee(hosts_[target], marked.datagram, addressee)) {
    return;
  }
  const PacketInPlace cnp = notification_of(marked.route, marked.datagram, addressee);
  launch(hosts_[target].node, cnp.route, cnp.bytes, 0);
}

}  // namespace softhca
