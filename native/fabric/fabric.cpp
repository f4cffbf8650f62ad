// Hosts and time: the heap of events, and what each of them does to an adapter.
#include "fabric/fabric.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace softhca {
namespace {

// Packets that a host hands to its link ahead of time, so that not each of them is an event.
constexpr std::uint64_t kAheadNs = 500;

std::string key_of(const Gid& gid) {
  return {reinterpret_cast<const char*>(gid.raw.data()), gid.raw.size()};
}

}  // namespace

Fabric::Fabric(const FabricSettings& settings, std::shared_ptr<VirtualClock> clock)
    : settings_(settings),
      clock_(std::move(clock)),
      trace_(settings.trace_bytes),
      marking_(settings.seed ^ 0x6d61726b),
      jittering_(settings.seed ^ 0x6a697474),
      answering_(settings.seed ^ 0x61636b73) {}

Fabric::~Fabric() {
  for (const Host& host : hosts_) {
    const std::lock_guard lock(*host.port.mutex);
    host.port.adapter->observe(nullptr);
  }
}

std::uint32_t Fabric::add_host(FabricPort port) {
  Host host;
  host.node = topology_.add_node();
  const auto number = static_cast<std::uint32_t>(hosts_.size());
  host.activity = port.adapter->activity();
  if (trace_.on()) {
    host.recorder = std::make_unique<Recorder>(trace_, *clock_, number + 1, delivering_);
    port.adapter->observe(host.recorder.get());
  }
  host.port = std::move(port);
  hosts_.push_back(std::move(host));
  host_of_node_.resize(topology_.node_count(), Topology::kNone);
  host_of_node_[hosts_.back().node] = number;
  follow_addresses(number);
  return number;
}

std::uint32_t Fabric::add_switch() {
  const std::uint32_t node = topology_.add_node();
  host_of_node_.resize(topology_.node_count(), Topology::kNone);
  return node;
}

std::uint32_t Fabric::connect(std::uint32_t a, std::uint32_t b, const LinkShape& shape) {
  is_meshed_ = false;
  return topology_.connect(a, b, shape);
}

void Fabric::set_link_up(std::uint32_t link, bool up) {
  topology_.links[link].up = up;
  topology_.forget_ways();
}

void Fabric::follow_addresses(std::uint32_t number) {
  Host& host = hosts_[number];
  const std::vector<Gid>& gids = host.port.adapter->config().gids;
  if (gids == host.gids) return;
  host.gids = gids;
  for (const Gid& gid : gids) {
    if (!gid.is_zero()) host_of_gid_[key_of(gid)] = number;
  }
}

std::uint32_t Fabric::host_of(const Gid& gid) const {
  const auto found = host_of_gid_.find(key_of(gid));
  return found == host_of_gid_.end() ? Topology::kNone : found->second;
}

void Fabric::push(std::uint64_t at_ns, What what, std::uint32_t node, std::uint64_t number) {
  heap_.push_back({at_ns, order_++, number, what, node});
  std::push_heap(heap_.begin(), heap_.end(), Later{});
}

void Fabric::call_at(std::uint64_t at_ns, std::uint64_t number) {
  push(std::max(at_ns, now_ns()), What::CALL, 0, number);
}

std::uint64_t Fabric::next_ns() {
  touch_hosts();
  return heap_.empty() ? kNever : heap_.front().at_ns;
}

void Fabric::touch_hosts() {
  // Before any host sends to what another one has become.
  for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
    if (*hosts_[i].port.touched && !*hosts_[i].port.closed) follow_addresses(i);
  }
  for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    if (!std::exchange(*host.port.touched, false)) continue;
    // What a program did itself is no news to it.
    if (!*host.port.closed) host.activity = host.port.adapter->activity();
    pump(i);
  }
}

Fabric::Stop Fabric::run(std::uint64_t until_ns, bool notices, std::uint64_t events) {
  noticed_ = call_due_ = false;
  told_.clear();
  touch_hosts();
  raise_again();
  if (noticed_ && notices) return Stop::NOTICE;
  while (!heap_.empty() || !held_.empty()) {
    // Nothing is left that could overtake them.
    if (heap_.empty() || (flying_ == held_.size() && !held_.empty())) {
      const Held first = held_.front();
      held_.erase(held_.begin());
      transmit(first.lane, first.flight, first.delay_ns);
      continue;
    }
    if (heap_.front().at_ns > until_ns) {
      clock_->now_ns = std::max(now_ns(), until_ns);
      return Stop::TIME;
    }
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    const Event event = heap_.back();
    heap_.pop_back();
    clock_->now_ns = event.at_ns;
    ++counters_.events;
    dispatch(event);
    raise_again();
    if (call_due_) return Stop::CALL;
    if (!told_.empty()) return Stop::TOLD;
    if (noticed_ && notices) return Stop::NOTICE;
    if (--events == 0) return Stop::INTERVAL;
  }
  if (until_ns != kNever) clock_->now_ns = std::max(now_ns(), until_ns);
  return Stop::QUIET;
}

void Fabric::raise_again() {
  if (raised_) std::rethrow_exception(std::exchange(raised_, nullptr));
}

void Fabric::dispatch(const Event& event) {
  const std::uint32_t host = host_of_node_.empty() ? 0 : host_of_node_[event.node];
  switch (event.what) {
    case What::ARRIVAL: {
      const auto flight = static_cast<std::uint32_t>(event.number);
      if (host == Topology::kNone) {
        forward(event.node, flight);
      } else {
        deliver(host, flight);
      }
      break;
    }
    case What::SEND:
      hosts_[host].sending_later = false;
      pump(host);
      break;
    case What::TIMER: {
      Host& woken = hosts_[host];
      if (woken.timer_at_ns != event.at_ns) break;  // There has been an earlier one since.
      woken.timer_at_ns = kNever;
      if (*woken.port.closed) break;
      {
        const std::lock_guard lock(*woken.port.mutex);
        if (woken.port.adapter->next_deadline_ns() <= now_ns()) {
          woken.port.adapter->advance(now_ns());
          woken.port.notify(*woken.port.adapter);
          note_activity(woken);
        }
      }
      pump(host);
      break;
    }
    case What::CALL:
      called_ = event.number;
      call_due_ = true;
      break;
  }
}

void Fabric::note_activity(Host& host) {
  const std::uint64_t activity = host.port.adapter->activity();
  if (activity == host.activity) return;
  host.activity = activity;
  noticed_ = true;
  host.port.notify(*host.port.adapter);
}

bool Fabric::next_packet(Host& host, std::uint32_t flight, OutgoingPacket& out) {
  const std::lock_guard lock(*host.port.mutex);
  return host.port.adapter->next_packet({flights_[flight].buffer.get(), kMaxDatagramBytes}, out,
                                        now_ns());
}

void Fabric::pump(std::uint32_t number) {
  Host& host = hosts_[number];
  OutgoingPacket out;
  if (*host.port.closed) return;
  while (!host.sending_later) {
    if (host.free_at_ns > now_ns() + kAheadNs) {
      host.sending_later = true;
      push(host.free_at_ns, What::SEND, host.node, 0);
      break;
    }
    const std::uint32_t flight = take_flight();
    if (!next_packet(host, flight, out)) {
      free_flight(flight);
      break;
    }
    launch_own(number, flight, out);
  }
  arm_timer(host);
}

// The adapter is not locked here: a predicate may call it.
void Fabric::launch_own(std::uint32_t number, std::uint32_t flight, const OutgoingPacket& out) {
  ++counters_.packets;
  Flight& packet = flights_[flight];
  std::uint8_t* const room = packet.buffer.get();
  packet.datagram = {room + (out.datagram.data() - room), out.datagram.size()};
  packet.route = out.route;
  packet.id = ++packets_;
  packet.source = number;
  trace_.add_sent({.at_ns = now_ns(),
                   .packet = packet.id,
                   .a = out.has_wr ? out.wr_id : 0,
                   .b = out.retransmitted,
                   .kind = RecordKind::SENT,
                   .host = number + 1,
                   .qpn = out.qpn},
                  packet.route, packet.datagram);
  if (out.route.destination.is_multicast()) {
    spread(number, flight);
    return;
  }
  const std::uint32_t target = host_of(out.route.destination);
  if (target == Topology::kNone) {
    lose(flight, "nobody has this address");
    return;
  }
  packet.target = hosts_[target].node;
  hosts_[number].free_at_ns = forward(hosts_[number].node, flight);
}

void Fabric::arm_timer(Host& host) {
  const std::lock_guard lock(*host.port.mutex);
  // Building packets completes requests too: those that fail, and those that nobody acknowledges.
  note_activity(host);
  const std::uint64_t deadline = host.port.adapter->next_deadline_ns();
  if (deadline >= host.timer_at_ns) return;
  host.timer_at_ns = std::max(deadline, now_ns());
  push(host.timer_at_ns, What::TIMER, host.node, 0);
}

void Fabric::deliver(std::uint32_t number, std::uint32_t flight) {
  Host& host = hosts_[number];
  if (*host.port.closed) {
    lose(flight, "the device is closed");
    return;
  }
  if (faults_.has(kInPlace) && answered(number, flight)) return;
  ++counters_.delivered;
  const Flight& packet = flights_[flight];
  {
    const std::lock_guard lock(*host.port.mutex);
    delivering_ = packet.id;
    const ReceiveReport report =
        host.port.adapter->receive(packet.route, packet.datagram, now_ns());
    delivering_ = 0;
    trace_.add({.at_ns = now_ns(),
                .packet = packet.id,
                .a = report.has_wr ? report.wr_id : 0,
                .kind = RecordKind::DELIVERED,
                .host = number + 1,
                .qpn = report.qpn,
                .text = trace_.on() ? trace_.word(report.verdict) : 0});
    note_activity(host);
  }
  free_flight(flight);
  if (settings_.ack_delay_ns != 0) answer_later(host);
  pump(number);
}

// As long as the host does not send, acknowledgements become one: each second arrival finds it busy
// for a while.
void Fabric::answer_later(Host& host) {
  const std::uint64_t drawn = answering_.below(2 * settings_.ack_delay_ns);
  if (host.sending_later || drawn >= settings_.ack_delay_ns) return;
  host.sending_later = true;
  push(now_ns() + 1 + drawn, What::SEND, host.node, 0);
}

}  // namespace softhca
