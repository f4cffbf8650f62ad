// Rounds of an engine whose links delay, double and hold back, one call after the other.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "driver/clock.hpp"
#include "driver/engine.hpp"
#include "link/fault_link.hpp"
#include "link/scripted_link.hpp"
#include "tests/check.hpp"
#include "tests/patience.hpp"
#include "wire/icrc.hpp"
#include "wire/packet.hpp"
#include "wire/syndrome.hpp"

namespace softhca {
namespace {

const Gid kOwn = Gid::from_ipv4(std::array<std::uint8_t, 4>{127, 0, 0, 8}.data());
const Gid kOther = Gid::from_ipv4(std::array<std::uint8_t, 4>{127, 0, 0, 9}.data());

AdapterConfig own_config() {
  AdapterConfig config;
  config.gids = {kOwn};
  config.udp_source_ports = {0xc000};
  return config;
}

// A wire that brings what it is told to, and notes for whom it has taken what: a list a call.
class ToldLink final : public Link {
 public:
  std::size_t send(std::span<const Datagram> datagrams) override {
    std::vector<std::uint32_t>& addressees = sent.emplace_back();
    for (const Datagram& datagram : datagrams) {
      Packet packet;
      CHECK(decode_packet(datagram.bytes, packet) == DecodeStatus::OK);
      addressees.push_back(packet.bth.destination_qpn);
    }
    return datagrams.size();
  }
  // One a call, as a socket does of which no more is expected.
  std::size_t receive(std::span<Datagram> datagrams) override {
    if (!strangers.empty()) {
      lent_ = std::move(strangers.back());
      strangers.pop_back();
    } else if (!bytes.empty()) {
      lent_ = std::exchange(bytes, {});
    } else {
      return 0;
    }
    datagrams[0] = {route, lent_};
    return 1;
  }
  LinkError join_group(const Gid&) override { return {}; }
  LinkError leave_group(const Gid&) override { return {}; }
  void tell_fields(bool wanted) override { tells_fields = wanted; }

  bool tells_fields = true;
  Route route;
  std::vector<std::uint8_t> bytes;
  std::vector<std::vector<std::uint8_t>> strangers;  // Come before.
  std::vector<std::vector<std::uint32_t>> sent;

 private:
  std::vector<std::uint8_t> lent_;
};

// Two UC queue pairs of one adapter: one that misses a packet does not hear of it again.
struct Scene {
  std::shared_ptr<GuardedAdapter> guarded;
  Adapter& adapter = guarded->adapter;
  EventBell bell;
  SinkTable sinks;
  Engine engine;
  std::uint64_t made_ns;
  std::uint32_t pd = 0, cq = 0, from = 0, to = 0;

  Scene(std::unique_ptr<Link> wire, std::unique_ptr<Link> loopback,
        const AdapterConfig& config = own_config(), Capture capture = {},
        std::uint64_t now_ns = monotonic_ns())
      : guarded(std::make_shared<GuardedAdapter>(config)),
        engine(guarded, std::move(wire), std::move(loopback), std::move(capture), bell, sinks),
        made_ns(now_ns) {
    CHECK_EQ(bell.open(), 0);
    QpInit init;
    init.type = QpType::UC;
    init.pd = pd = adapter.alloc_pd().value;
    cq = init.send_cq = init.recv_cq = adapter.create_cq(256).value;
    init.cap = {64, 256, 1, 1, 0};
    from = adapter.create_qp(init).value;
    to = adapter.create_qp(init).value;
    connect(from, to);
    connect(to, from);
  }

  void connect(std::uint32_t qpn, std::uint32_t peer, const Gid& at = kOwn) {
    QpAttr attr;
    attr.path_mtu = 5;
    attr.dest_qp_num = peer;
    attr.ah_attr.dgid = at;
    const auto modify = [&](QpState state, std::uint32_t mask) {
      attr.qp_state = state;
      CHECK(adapter.modify_qp(qpn, attr, mask, made_ns).ok());
    };
    modify(QpState::INIT, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags);
    modify(QpState::RTR, kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn);
    modify(QpState::RTS, kQpState | kQpSqPsn);
  }

  // Each of them arrives so many times.
  void post(std::size_t messages, std::size_t times = 1) {
    const RecvWr recv;
    const SendWr send;
    const RecvWr* receives[] = {&recv};
    const SendWr* sends[] = {&send};
    std::size_t posted = 0;
    for (std::size_t i = 0; i < messages * times; ++i) {
      CHECK(adapter.post_recv(to, receives, posted, monotonic_ns()).ok());
    }
    for (std::size_t i = 0; i < messages; ++i) {
      CHECK(adapter.post_send(from, sends, posted, monotonic_ns()).ok());
    }
  }
  // One message of so many full packets, from memory.
  void post_long(std::uint32_t qpn, std::vector<std::uint8_t>& bytes) {
    const auto address = reinterpret_cast<std::uint64_t>(bytes.data());
    const MrInfo mr = adapter.reg_mr(pd, address, bytes.size(), address, 0).value;
    const Sge sge{address, static_cast<std::uint32_t>(bytes.size()), mr.lkey};
    SendWr send;
    send.sges = {sge};
    send.send_flags = kSendSignaled;
    const SendWr* sends[] = {&send};
    std::size_t posted = 0;
    CHECK(adapter.post_send(qpn, sends, posted, monotonic_ns()).ok());
  }
  std::size_t taken() {
    std::array<Completion, 256> out;
    return adapter.poll_cq(cq, out).value;
  }
  void run() {
    while (engine.round(true, true, false)) {
    }
  }
};

// Rounds as callers have them who poll and find nothing. True: something came.
bool polls_bring_something(Scene& scene) {
  const std::uint64_t until_ns = monotonic_ns() + testing::kPatienceNs;
  do {
    static_cast<void>(scene.engine.round(true, false, true));
    if (scene.taken() > 0) return true;
  } while (monotonic_ns() < until_ns);
  return false;
}

std::shared_ptr<SharedFaults> delay_of(std::uint64_t delay_ns) {
  FaultRule rule;
  rule.action = FaultAction::DELAY;
  rule.delay_ns = delay_ns;
  rule.match.direction = 1;
  auto rules = std::make_shared<SharedFaults>();
  rules->rules.add(std::move(rule));
  return rules;
}

TEST("engine: what was delayed on its way to the own address leaves at a poll") {
  constexpr std::uint64_t kDelayNs = 1'000'000;
  const FindAddressee nobody = [](std::uint32_t, Addressee&) { return false; };
  Scene scene(
      std::make_unique<ToldLink>(),
      std::make_unique<ScriptedLink>(std::make_unique<LoopbackLink>(), delay_of(kDelayNs), nobody));
  const std::uint64_t began_ns = monotonic_ns();
  scene.post(1);
  scene.run();
  // Who gets no processor for so long finds that the time has passed, and the packet there.
  CHECK(scene.taken() > 0 || polls_bring_something(scene));
  CHECK(monotonic_ns() - began_ns >= kDelayNs);
}

TEST("engine: what was doubled on its way to the own address arrives without another call") {
  constexpr std::size_t kMessages = 60;
  FaultSettings doubled;
  doubled.send = doubled.receive = {.duplicate = 1};
  Scene scene(std::make_unique<ToldLink>(),
              std::make_unique<FaultLink>(std::make_unique<LoopbackLink>(), doubled));
  scene.post(kMessages, 4);
  scene.run();
  CHECK_EQ(scene.taken(), 4 * kMessages);
}

TEST("engine: what nothing overtakes is let go at a poll") {
  // A packet of the one queue pair to the other, which comes from the wire for once.
  FaultSettings disordered;
  disordered.receive = {.reorder = 1};
  auto told = std::make_unique<ToldLink>();
  ToldLink& wire = *told;
  Scene scene(std::make_unique<FaultLink>(std::move(told), disordered),
              std::make_unique<LoopbackLink>());
  scene.post(1);
  std::vector<std::uint8_t> buffer(kDatagramBufferBytes);
  OutgoingPacket packet;
  CHECK(scene.adapter.next_packet(buffer, packet, monotonic_ns()));
  scene.run();
  CHECK_EQ(scene.taken(), std::size_t{0});
  wire.route = packet.route;
  wire.bytes.assign(packet.datagram.begin(), packet.datagram.end());
  CHECK(polls_bring_something(scene));
}

TEST("engine: a wire tells of fields of IP headers from the first queue pair on that shows them") {
  auto told = std::make_unique<ToldLink>();
  ToldLink& wire = *told;
  Scene scene(std::move(told), std::make_unique<LoopbackLink>());
  CHECK(wire.tells_fields);
  scene.run();
  CHECK(!wire.tells_fields);
  QpInit init;
  init.type = QpType::UD;
  init.pd = scene.pd;
  init.send_cq = init.recv_cq = scene.cq;
  init.cap = {1, 1, 1, 1, 0};
  CHECK(scene.adapter.create_qp(init).ok());
  // What a round brings has been asked for before.
  scene.run();
  CHECK(wire.tells_fields);
}

TEST("engine: captures and congestion control have a wire tell of fields of IP headers") {
  AdapterConfig controlled = own_config();
  controlled.congestion.line_bits_per_second = 10'000'000'000;
  for (const bool captured : {false, true}) {
    Capture capture;
    if (captured) CHECK(Capture::open("/dev/null", capture).ok());
    auto told = std::make_unique<ToldLink>();
    ToldLink& wire = *told;
    Scene scene(std::move(told), std::make_unique<LoopbackLink>(),
                captured ? own_config() : controlled, std::move(capture));
    scene.run();
    CHECK(wire.tells_fields);
  }
}

// A queue pair that allows no retry; its request left long ago, when this process was stopped.
struct Stopped {
  static constexpr std::uint64_t kStoppedNs = 10'000'000'000;
  std::unique_ptr<ToldLink> told = std::make_unique<ToldLink>();
  ToldLink& wire = *told;
  const std::uint64_t before_ns = monotonic_ns() - kStoppedNs;
  Scene scene{std::move(told), std::make_unique<LoopbackLink>(), own_config(), {}, before_ns};

  Stopped() {
    Adapter& adapter = scene.adapter;
    QpInit init;
    init.type = QpType::RC;
    init.pd = scene.pd;
    init.send_cq = init.recv_cq = scene.cq;
    init.cap = {1, 1, 1, 1, 0};
    const std::uint32_t qpn = adapter.create_qp(init).value;
    QpAttr attr;
    attr.path_mtu = 5;
    attr.dest_qp_num = 0x111;
    attr.ah_attr.dgid = kOther;
    attr.timeout = 14;
    const auto modify = [&](QpState state, std::uint32_t mask) {
      attr.qp_state = state;
      CHECK(adapter.modify_qp(qpn, attr, mask | kQpState, before_ns).ok());
    };
    modify(QpState::INIT, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    modify(QpState::RTR,
           kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
    modify(QpState::RTS, kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic);
    SendWr send;
    send.send_flags = kSendSignaled;
    const SendWr* sends[] = {&send};
    std::size_t posted = 0;
    CHECK(adapter.post_send(qpn, sends, posted, before_ns).ok());
    std::vector<std::uint8_t> buffer(kDatagramBufferBytes);
    OutgoingPacket packet;
    CHECK(adapter.next_packet(buffer, packet, before_ns));
    answer(qpn);
  }
  void answer(std::uint32_t qpn) {
    Packet packet;
    packet.bth.opcode = make_opcode(OpcodeTransport::RC, Operation::ACKNOWLEDGE);
    packet.bth.destination_qpn = qpn;
    packet.info = &opcode_info(packet.bth.opcode);
    packet.aeth.syndrome = kSyndromeAck;
    wire.route.source = kOther;
    wire.route.destination = kOwn;
    wire.route.udp_source_port = 0xc000;
    wire.bytes.resize(kDatagramBufferBytes);
    const std::size_t end = encode_headers(packet, wire.bytes);
    append_icrc(wire.route, ByteSpan(wire.bytes).first(end));
    wire.bytes.resize(end + kIcrcBytes);
  }
  void check_succeeds() {
    std::array<Completion, 2> out;
    CHECK_EQ(scene.adapter.poll_cq(scene.cq, out).value, std::size_t{1});
    CHECK(out[0].status == WcStatus::SUCCESS);
  }
};

TEST("engine: what came before a post is read before the post's round believes a time-out") {
  Stopped stopped;
  stopped.scene.engine.round(false, true, false);
  stopped.scene.run();
  stopped.check_succeeds();
}

TEST("engine: an answer behind others' packets is read before its time-out is believed") {
  for (const bool patient : {false, true}) {
    Stopped stopped;
    stopped.wire.strangers.assign(40, {1, 2, 3});
    for (int i = 0; i < 60; ++i) stopped.scene.engine.round(true, true, patient);
    stopped.check_succeeds();
  }
}

TEST("engine: who sends long messages gets a round of its own, and then it is another's turn") {
  constexpr std::size_t kPacket = 4096, kPackets = 50;
  constexpr std::uint32_t kPeers[] = {0x111, 0x222};
  auto told = std::make_unique<ToldLink>();
  ToldLink& wire = *told;
  Scene scene(std::move(told), std::make_unique<LoopbackLink>());
  std::vector<std::uint8_t> bytes(kPackets * kPacket);
  const std::uint32_t qps[] = {scene.from, scene.to};
  for (std::size_t i = 0; i < 2; ++i) {
    QpAttr reset;
    CHECK(scene.adapter.modify_qp(qps[i], reset, kQpState, monotonic_ns()).ok());
    scene.connect(qps[i], kPeers[i], kOther);
    scene.post_long(qps[i], bytes);
  }
  scene.run();
  CHECK_EQ(scene.taken(), std::size_t{2});
  std::size_t packets = 0;
  for (std::size_t round = 0; round < wire.sent.size(); ++round) {
    const std::vector<std::uint32_t>& addressees = wire.sent[round];
    packets += addressees.size();
    // The last ones are short, and may be of both.
    if (round > 5) continue;
    CHECK(addressees.size() > 10);
    CHECK(std::ranges::all_of(addressees, [&](auto qpn) { return qpn == kPeers[round % 2]; }));
  }
  CHECK_EQ(packets, 2 * kPackets);
}

}  // namespace
}  // namespace softhca
