// Many adapters, the links and switches between them, and one clock: everything in virtual time.
//
// One caller at a time. Deterministic: the same calls give the same packets at the same times.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "adapter/adapter.hpp"
#include "fabric/recorder.hpp"
#include "fabric/topology.hpp"
#include "fabric/trace.hpp"
#include "faults/fault_set.hpp"
#include "faults/in_place.hpp"
#include "vocabulary/random.hpp"
#include "vocabulary/short_mutex.hpp"
#include "vocabulary/time.hpp"

namespace softhca {

// A host's adapter as the fabric sees it.
struct FabricPort {
  Adapter* adapter = nullptr;
  ShortMutex* mutex = nullptr;  // Of the adapter.
  bool* touched = nullptr;      // Somebody called the adapter: it may have packets.
  const bool* closed = nullptr;
  std::function<void(Adapter&)> notify;  // Hands out what the adapter has to tell. It is locked.
};

struct FabricSettings {
  std::uint64_t seed = 1;
  LinkShape link;  // Of hosts that no link connects explicitly.
  std::size_t trace_bytes = 64u << 20;
  // Packets of different flows overtake each other within this time.
  std::uint64_t jitter_ns = 0;
  // A host answers what arrived within this time together.
  std::uint64_t ack_delay_ns = 0;
};

struct FabricCounters {
  std::uint64_t packets = 0;  // That hosts sent.
  std::uint64_t delivered = 0;
  std::uint64_t lost = 0;  // To faults, queues and missing ways.
  std::uint64_t events = 0;
};

class Fabric {
 public:
  enum class Stop : std::uint8_t {
    TIME,      // The time is up.
    NOTICE,    // A program can see something new.
    QUIET,     // Nothing more will happen by itself.
    CALL,      // A call that was asked for is due.
    TOLD,      // A rule of kind TELL struck.
    INTERVAL,  // So many events have passed.
  };

  Fabric(const FabricSettings& settings, std::shared_ptr<VirtualClock> clock);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // Hosts and switches are nodes; hosts are numbered by themselves, beginning with 0.
  std::uint32_t add_host(FabricPort port);
  std::uint32_t add_switch();
  std::uint32_t node_of_host(std::uint32_t host) const { return hosts_[host].node; }
  std::uint32_t connect(std::uint32_t a, std::uint32_t b, const LinkShape& shape);
  void set_link_up(std::uint32_t link, bool up);

  FaultSet& faults() { return faults_; }
  Trace& trace() { return trace_; }
  const Topology& topology() const { return topology_; }
  const FabricCounters& counters() const { return counters_; }
  std::uint64_t now_ns() const { return clock_->now_ns; }

  // Lets things happen until `until_ns`, or until there is a reason to stop; with `notices`, what a
  // program can see is one. At most `events` of them.
  Stop run(std::uint64_t until_ns, bool notices, std::uint64_t events);
  // Stops run() at a time with CALL, and gives `number`.
  void call_at(std::uint64_t at_ns, std::uint64_t number);
  std::uint64_t called() const { return called_; }
  // Rules of kind TELL that struck since the last call, in order.
  std::vector<std::uint32_t> take_told() { return std::exchange(told_, {}); }
  // When something happens next; kNever if nothing does.
  std::uint64_t next_ns();
  // Packets on their way.
  std::uint64_t flying() const { return flying_; }
  // Delivers a datagram as if somebody had sent it.
  void inject(const Route& route, ByteView datagram, std::uint64_t delay_ns);

 private:
  enum class What : std::uint32_t { ARRIVAL, SEND, TIMER, CALL };
  struct Event {
    std::uint64_t at_ns;
    std::uint64_t order;  // Breaks ties: in the order in which they were caused.
    std::uint64_t number;
    What what;
    std::uint32_t node;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.order > b.order;
    }
  };
  struct Flight {
    std::unique_ptr<std::uint8_t[]> buffer;
    ByteSpan datagram;  // In the buffer.
    Route route;
    std::uint64_t id = 0;
    std::uint32_t source = 0;  // Host; Topology::kNone if it comes from none.
    std::uint32_t target = 0;  // Node.
  };
  struct Host {
    FabricPort port;
    std::unique_ptr<Recorder> recorder;
    std::vector<Gid> gids;  // As they were when it was last touched.
    std::uint32_t node = 0;
    std::uint64_t activity = 0;
    std::uint64_t free_at_ns = 0;  // Its last packet has left by then.
    std::uint64_t timer_at_ns = kNever;
    bool sending_later = false;  // There is an event for it.
  };
  struct Held {
    std::uint32_t flight;
    std::uint32_t overtakers;
    std::uint32_t lane;
    std::uint64_t delay_ns;  // Once it goes on.
  };

  void push(std::uint64_t at_ns, What what, std::uint32_t node, std::uint64_t number);
  void dispatch(const Event& event);
  void touch_hosts();
  // What the host wants sent leaves, as fast as its link goes.
  void pump(std::uint32_t host);
  void deliver(std::uint32_t host, std::uint32_t flight);
  bool next_packet(Host& host, std::uint32_t flight, OutgoingPacket& out);
  void launch_own(std::uint32_t host, std::uint32_t flight, const OutgoingPacket& out);
  void arm_timer(Host& host);
  void note_activity(Host& host);

  std::uint32_t take_flight();
  void free_flight(std::uint32_t flight);
  std::uint32_t copy_flight(std::uint32_t flight);
  // Sends a packet on from `node`; returns when its last bit has left.
  std::uint64_t forward(std::uint32_t node, std::uint32_t flight);
  std::uint64_t cross(std::uint32_t lane, std::uint32_t flight);
  bool judge(std::uint32_t lane, std::uint32_t flight);
  void ask_faults(const Route& route, ByteSpan& datagram, int link, FaultActions actions,
                  HostPair hosts);
  void raise_again();
  HostPair hosts_of(const Flight& packet) const;
  void transmit(std::uint32_t lane, std::uint32_t flight, std::uint64_t delay_ns);
  bool admit(Lane& lane, Flight& packet, std::uint64_t bytes);
  void pass_held(std::uint32_t lane);
  void lose(std::uint32_t flight, const char* why);
  // The host does not see a request, for a rule answers it; true if so.
  bool answered(std::uint32_t host, std::uint32_t flight);
  bool find_addressee(Host& host, ByteView packet, Addressee& addressee);
  void answer_later(Host& host);
  void note_strikes(std::uint64_t packet);
  void send_cnp(const Flight& marked);
  void launch(std::uint32_t node, const Route& route, ByteView datagram, std::uint64_t delay_ns);
  void spread(std::uint32_t host, std::uint32_t flight);
  std::uint64_t in_order(const Flight& packet, std::uint64_t arrives_ns);
  // Packets to an address that the host has taken reach it from then on. Those to one that it has
  // given up still do, until another host takes that.
  void follow_addresses(std::uint32_t host);
  std::uint32_t host_of(const Gid& gid) const;
  std::uint32_t implied_lane(std::uint32_t from, std::uint32_t to);

  const FabricSettings settings_;
  std::shared_ptr<VirtualClock> clock_;
  Topology topology_;
  bool is_meshed_ = true;   // No link was made explicitly: hosts are joined as they talk.
  std::deque<Host> hosts_;  // A predicate may add some while another is referred to.
  std::vector<std::uint32_t> host_of_node_;
  std::unordered_map<std::string, std::uint32_t> host_of_gid_;
  std::unordered_map<std::uint64_t, std::uint32_t> mesh_;
  FaultSet faults_;
  FaultVerdict verdict_;
  Trace trace_;
  FabricCounters counters_;
  Random marking_;
  Random jittering_;
  Random answering_;
  std::unordered_map<std::uint64_t, std::uint64_t> last_arrivals_;  // By flow, with jitter.
  std::vector<Event> heap_;
  std::deque<Flight> flights_;
  std::vector<std::uint32_t> spare_;
  std::vector<Held> held_;
  std::uint64_t order_ = 0;
  std::uint64_t packets_ = 0;
  std::uint64_t delivering_ = 0;  // The packet that a host takes just now.
  std::uint64_t flying_ = 0;
  std::uint64_t called_ = 0;
  bool noticed_ = false;
  std::vector<std::uint32_t> told_;
  bool call_due_ = false;
  // By a predicate or script: the packet goes on as it was, and then run() tells its caller.
  std::exception_ptr raised_;
};

}  // namespace softhca
