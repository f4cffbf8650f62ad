// Two queue pairs of one adapter, or of two with ways or the wire between them, whose messages may
// be short or never are.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "adapter/adapter.hpp"
#include "link/link.hpp"
#include "tests/check.hpp"
#include "transport/local_path.hpp"
#include "vocabulary/observer.hpp"
#include "vocabulary/random.hpp"
#include "wire/icrc.hpp"

namespace softhca::testing::twins {

inline constexpr std::uint64_t kSourceIova = 0x10000;
inline constexpr std::uint64_t kTargetIova = 0x20000;
inline constexpr std::size_t kBytes = 8192;
inline constexpr std::uint32_t kDepth = 40;
// Room for all that both queues can hold; a completion queue that overflowed once is lost for good.
inline constexpr std::uint32_t kCompletions = 4 * kDepth;

class Nobody final : public Observer {
 public:
  void posted_send(std::uint32_t, std::uint64_t, WrOpcode, std::uint64_t, bool) override {}
  void posted_receive(std::uint32_t, std::uint64_t, std::uint64_t) override {}
  void posted_shared_receive(std::uint32_t, std::uint64_t, std::uint64_t) override {}
  void completed(std::uint32_t, std::uint64_t, WcStatus, std::uint32_t, bool) override {}
  void created(std::uint32_t, QpType, std::uint32_t, std::uint32_t, std::uint32_t,
               std::uint32_t) override {}
  void changed_state(std::uint32_t, QpState, QpState, std::uint32_t, std::uint32_t) override {}
  void destroyed(std::uint32_t) override {}
  void wrote(std::uint32_t, std::uint64_t, ByteView, ByteView) override {}
  void named(const NamedMemory&) override {}
  void unnamed(std::uint32_t) override {}
  void raised(EventType, std::uint32_t) override {}
};

// What is between the queue pairs.
enum class Between { NOTHING, WAYS, WIRE };

inline AdapterConfig config_of(std::uint8_t host, bool lazy_acks, Between between) {
  const std::uint8_t address[4] = {10, 0, 0, host};
  AdapterConfig config;
  config.gids = {Gid::from_ipv4(address)};
  config.seed = softhca::testing::seed() + host;
  config.shortcut = between != Between::WIRE;
  config.lazy_acks = lazy_acks;
  return config;
}

// What there is to see of a packet that takes a way.
struct Seen {
  std::uint8_t opcode = 0;
  bool ack_request = false;
  bool solicited = false;
  std::uint32_t psn = 0;
  std::uint32_t psns = 0;
  std::uint32_t syndrome = 0;
  std::uint32_t msn = 0;
  std::uint32_t immediate = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::size_t pieces = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

// The way from one adapter to another: packets lie there until somebody carries them over. What
// happens to them on a bad way is drawn from a generator that the caller has.
class Way final : public LocalPath, public LocalPaths {
 public:
  bool has_room() override { return true; }
  bool can_fetch(std::span<const MemoryPiece>) override { return lends; }
  bool delivers_at_once() const override { return false; }
  void recall(std::uint32_t, LentPayloads) override {}
  bool revoke(std::uint32_t) override { return false; }
  LocalPath* path_to(const Gid& own, const Gid& peer) override {
    route_.source = own;
    route_.destination = peer;
    return this;
  }
  // Not all of a list finds room.
  std::size_t send_short(std::span<const ShortPacket> packets) override {
    const std::size_t taken = lists_.below(8) == 0 ? lists_.below(packets.size()) : packets.size();
    for (const ShortPacket& packet : packets.first(taken)) send_whole(packet_of(packet));
    return taken;
  }
  bool lend(const ShortPacket& packet, std::uint32_t qpn, std::uint32_t lkey) override {
    if (!lends || lists_.below(8) == 0) return false;
    LocalPacket local;
    local.route = route_;
    local.packet = packet_of(packet);
    local.qpn = qpn;
    refer(local, packet.payload, lkey);
    send(local);
    return true;
  }
  bool send_answer(const WholeAnswer& packet, std::uint32_t qpn, std::uint32_t rkey) override {
    const bool is_long = packet.payload.size() > kLocalCopiedBytes;
    if ((is_long && !lends) || lists_.below(8) == 0) return false;
    LocalPacket local;
    local.route = route_;
    local.packet = packet_of(packet);
    local.qpn = qpn;
    if (is_long) refer(local, packet.payload, rkey);
    send(local);
    return true;
  }
  bool send_acknowledge(const PlainAcknowledge& packet) override {
    if (lists_.below(8) == 0) return false;
    send_whole(packet_of(packet));
    return true;
  }
  void send(const LocalPacket& local) override {
    const Packet& packet = local.packet;
    seen.push_back({packet.bth.opcode, packet.bth.ack_request, packet.bth.solicited, packet.bth.psn,
                    packet.psns, packet.aeth.syndrome, packet.aeth.msn, packet.immediate,
                    packet.reth.virtual_address, packet.payload_bytes(), packet.pieces.size()});
    Carried carried{local.route, local.packet, {}, local.pieces, local.qpn};
    carried.payload.assign(local.packet.payload.begin(), local.packet.payload.end());
    carried_.push_back(std::move(carried));
  }
  bool deliver(Adapter& from, Adapter& to, std::uint64_t now_ns, bool is_bad, Random& random) {
    if (carried_.empty()) return false;
    // As many as come together, not all of which may be short.
    std::vector<Carried> arriving;
    for (std::uint64_t count = 1 + random.below(12); count > 0 && !carried_.empty(); --count) {
      Carried one = std::move(carried_.front());
      carried_.pop_front();
      const std::uint64_t fate = is_bad ? random.below(64) : 0;
      if (fate == 1) continue;
      if (fate == 2) damage(one, random);
      if (fate == 4 && !one.pieces.empty()) one.pieces.back().address = 8;
      arriving.push_back(one);
      if (fate == 3) arriving.push_back(one);
    }
    for (Carried& one : arriving) one.refer();
    arrive(from, to, arriving, now_ns);
    return true;
  }

  std::vector<Seen> seen;
  bool lends = false;  // Long payloads stay where they are until they are carried over.

 private:
  struct Carried {
    Route route;
    Packet packet;
    std::vector<std::uint8_t> payload;
    std::vector<MemoryPiece> pieces;
    std::uint32_t qpn = 0;

    void refer() {
      packet.payload = payload;
      packet.pieces = pieces;
      packet.pieces_bytes = 0;
      for (const MemoryPiece& piece : pieces) packet.pieces_bytes += piece.length;
    }
  };
  static void refer(LocalPacket& local, ByteView payload, std::uint32_t key) {
    local.pieces = {
        {&process_space(), reinterpret_cast<std::uint64_t>(payload.data()), payload.size(), key}};
    local.packet.payload = {};
    local.packet.pieces = local.pieces;
    local.packet.pieces_bytes = payload.size();
  }
  void send_whole(const Packet& packet) {
    LocalPacket local;
    local.route = route_;
    local.packet = packet;
    send(local);
  }
  static void arrive(Adapter& from, Adapter& to, std::span<const Carried> arriving,
                     std::uint64_t now_ns) {
    while (!arriving.empty()) {
      std::vector<ShortPacket> run;
      for (ShortPacket brief;
           run.size() < arriving.size() && short_form(arriving[run.size()].packet, brief);) {
        run.push_back(brief);
      }
      const Route& route = arriving.front().route;
      const std::size_t taken = run.empty() ? 0 : to.receive_short(route, run, now_ns);
      CHECK(taken <= run.size());
      if (taken < run.size() || taken == 0) {
        arrive(from, to, arriving[taken], now_ns);
        arriving = arriving.subspan(1);
      }
      arriving = arriving.subspan(taken);
    }
  }
  static void arrive(Adapter& from, Adapter& to, const Carried& one, std::uint64_t now_ns) {
    const Packet& packet = one.packet;
    PlainAcknowledge plain;
    if (short_form(packet, plain) && to.receive_acknowledge(one.route, plain, now_ns)) return;
    ShortPacket request;
    if (read_form(packet, request) && to.receive_read(one.route, request, now_ns)) return;
    ShortPacket lent;
    WholeAnswer answer;
    if ((one.pieces.size() == 1 && lent_form(packet, lent) &&
         to.receive_lent(one.route, lent, *one.pieces[0].space, now_ns)) ||
        (one.pieces.size() < 2 && answer_form(packet, answer) &&
         to.receive_lent(one.route, answer, process_space(), now_ns))) {
      return;
    }
    const bool readable = to.receive_local(one.route, packet, now_ns);
    CHECK(readable || !one.pieces.empty());
    if (!readable) from.payload_unreadable(lent_payload_of(one.qpn, packet), now_ns);
  }
  static bool lent_form(Packet packet, ShortPacket& lent) {
    const MemoryPiece piece = packet.pieces.front();
    packet.pieces = {};
    const std::uint32_t psns = std::exchange(packet.psns, 1);
    if (!short_form(packet, lent)) return false;
    lent.psns = psns;
    lent.payload = {reinterpret_cast<const std::uint8_t*>(piece.address), piece.length};
    return true;
  }
  static bool read_form(Packet packet, ShortPacket& request) {
    if (packet.bth.opcode != kReadRequestOpcode) return false;
    packet.bth.opcode = make_opcode(OpcodeTransport::RC, Operation::RDMA_WRITE_ONLY);
    if (!short_form(packet, request)) return false;
    request.opcode = kReadRequestOpcode;
    return true;
  }
  static bool answer_form(Packet packet, WholeAnswer& answer) {
    if (packet.bth.opcode != WholeAnswer::kOpcode) return false;
    packet.bth.opcode = PlainAcknowledge::kOpcode;
    answer.psns = std::exchange(packet.psns, 1);
    answer.payload = packet.payload;
    if (!packet.pieces.empty()) {
      const MemoryPiece piece = packet.pieces.front();
      answer.payload = {reinterpret_cast<const std::uint8_t*>(piece.address), piece.length};
    }
    return short_form(packet, answer.acknowledge);
  }
  // What a peer that is no adapter of ours might send.
  static void damage(Carried& one, Random& random) {
    Packet& packet = one.packet;
    switch (random.below(one.pieces.empty() ? 4 : 6)) {
      case 4:
        ++packet.psns;
        break;
      case 5:
        one.pieces.back().length -= random.below(one.pieces.back().length);
        break;
      case 0:
        packet.bth.psn = (packet.bth.psn + 1) & 0xffffff;
        break;
      case 1:
        packet.reth.length += 1;
        break;
      case 2:
        packet.reth.rkey ^= 1;
        break;
      default:
        packet.bth.solicited = !packet.bth.solicited;
        break;
    }
  }
  Route route_;
  std::deque<Carried> carried_;
  Random lists_{softhca::testing::seed()};
};

// A datagram that leaves, with what captures tell of it, or what they tell of one that came.
struct SeenDatagram {
  std::vector<std::uint8_t> datagram;
  std::uint32_t qpn = 0;
  bool has_wr = false;
  std::uint64_t wr_id = 0;
  bool retransmitted = false;
  friend bool operator==(const SeenDatagram&, const SeenDatagram&) = default;
};

// The wire from one adapter to another, the same for datagrams.
class Wire {
 public:
  // Takes what the adapter has to send.
  bool take(Adapter& from, std::uint64_t now_ns) {
    std::vector<std::uint8_t> buffer(kDatagramBufferBytes);
    OutgoingPacket out;
    bool any = false;
    while (from.next_packet(buffer, out, now_ns)) {
      from.keep_turn();
      carried_.push_back({out.route, {out.datagram.begin(), out.datagram.end()}});
      seen.push_back({carried_.back().datagram, out.qpn, out.has_wr, out.wr_id, out.retransmitted});
      any = true;
    }
    return any;
  }
  bool deliver(Adapter& to, std::uint64_t now_ns, bool is_bad, Random& random) {
    if (carried_.empty()) return false;
    Carried one = std::move(carried_.front());
    carried_.pop_front();
    const std::uint64_t fate = is_bad ? random.below(64) : 0;
    if (fate == 1) return true;
    if (fate == 2) damage(one, random);
    arrive(to, one, now_ns);
    if (fate == 3) arrive(to, one, now_ns);
    return true;
  }

  std::vector<SeenDatagram> seen;

 private:
  struct Carried {
    Route route;
    std::vector<std::uint8_t> datagram;
  };
  void arrive(Adapter& to, const Carried& one, std::uint64_t now_ns) {
    const ReceiveReport report = to.receive(one.route, one.datagram, now_ns);
    seen.push_back({{}, report.qpn, report.has_wr, report.has_wr ? report.wr_id : 0, false});
  }
  // In any bit of the headers or behind them, or in length. Its ICRC is right again, or else nobody
  // would look at it.
  static void damage(Carried& one, Random& random) {
    std::vector<std::uint8_t>& datagram = one.datagram;
    if (random.below(4) == 0) {
      datagram.resize(datagram.size() + random.below(8));
    } else {
      const std::size_t covered = datagram.size() - kIcrcBytes;
      datagram[random.below(std::min<std::size_t>(covered, 40))] ^=
          static_cast<std::uint8_t>(1u << random.below(8));
    }
    append_icrc(one.route, ByteSpan(datagram).first(datagram.size() - kIcrcBytes));
  }
  std::deque<Carried> carried_;
};

// One end of a connection: what belongs to it on its adapter.
struct End {
  Adapter* adapter = nullptr;
  std::uint32_t pd = 0;
  std::uint32_t cq = 0;
  std::uint32_t qpn = 0;
  std::vector<std::uint8_t> source = std::vector<std::uint8_t>(kBytes);
  std::vector<std::uint8_t> target = std::vector<std::uint8_t>(kBytes);
  MrInfo source_mr;
  MrInfo target_mr;

  void open(Adapter& on) {
    adapter = &on;
    pd = on.alloc_pd().value;
    cq = on.create_cq(kCompletions).value;
    for (std::size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::uint8_t>(i * 7);
    source_mr = on.reg_mr(pd, address(source), kBytes, kSourceIova, 0).value;
    target_mr = on.reg_mr(pd, address(target), kBytes, kTargetIova, 0xf).value;
    QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.cap = {kDepth, kDepth, 2, 2, 64};
    qpn = on.create_qp(init).value;
  }
  static std::uint64_t address(const std::vector<std::uint8_t>& bytes) {
    return reinterpret_cast<std::uint64_t>(bytes.data());
  }
};

inline void modify(End& end, const QpAttr& attr, std::uint32_t mask, std::uint64_t now_ns) {
  CHECK(end.adapter->modify_qp(end.qpn, attr, mask, now_ns).ok());
}

inline void connect_ends(std::array<End, 2>& ends, std::uint32_t rights, std::uint8_t path_mtu,
                         std::uint64_t now_ns, std::uint8_t resources = 4,
                         std::uint32_t first_psn = 0) {
  for (std::size_t i = 0; i < 2; ++i) {
    End& end = ends[i];
    const End& peer = ends[1 - i];
    QpAttr attr;
    attr.qp_state = QpState::RESET;
    modify(end, attr, kQpState, now_ns);
    attr.qp_state = QpState::INIT;
    attr.qp_access_flags = rights;
    modify(end, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags, now_ns);
    attr.qp_state = QpState::RTR;
    attr.ah_attr.dgid = peer.adapter->config().gids[0];
    attr.path_mtu = path_mtu;
    attr.dest_qp_num = peer.qpn;
    attr.max_dest_rd_atomic = resources;
    attr.min_rnr_timer = 12;
    attr.rq_psn = first_psn;
    modify(
        end, attr,
        kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
        now_ns);
  }
  for (End& end : ends) {
    QpAttr attr;
    attr.qp_state = QpState::RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 2;
    attr.sq_psn = first_psn;
    attr.max_rd_atomic = 4;
    modify(end, attr,
           kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic, now_ns);
  }
}

class Pair {
 public:
  Pair(Between between, bool lazy_acks, Observer* observer) : observer_(observer) {
    first_ = std::make_unique<Adapter>(config_of(1, lazy_acks, between));
    if (between != Between::NOTHING) {
      second_ = std::make_unique<Adapter>(config_of(2, lazy_acks, between));
    }
    first_->set_paths(&there_);
    if (second_) second_->set_paths(&back_);
    ends[0].open(*first_);
    ends[1].open(second_ ? *second_ : *first_);
    connect();
  }
  ~Pair() {
    first_->set_paths(nullptr);
    if (second_) second_->set_paths(nullptr);
  }

  // What is observed while it connects takes the wire.
  void connect(std::uint32_t rights = 0xf, std::uint8_t path_mtu = 4, bool lends = false,
               std::uint8_t resources = 4, std::uint32_t first_psn = 0) {
    there_.lends = back_.lends = lends;
    for (const End& end : ends) end.adapter->observe(nullptr);
    connect_ends(ends, rights, path_mtu, now_ns, resources, first_psn);
    for (const End& end : ends) end.adapter->observe(observer_);
  }

  // Until nothing moves any more, or each way has carried so many packets.
  void settle(int most, bool is_bad, std::uint64_t seed) {
    Random random(seed);
    for (bool more = true; more;) {
      more = first_->exchange(now_ns);
      if (!second_) continue;
      more |= second_->exchange(now_ns);
      more |= wire_there_.take(*first_, now_ns);
      more |= wire_back_.take(*second_, now_ns);
      if (more) continue;
      if (most-- <= 0) break;
      more |= there_.deliver(*first_, *second_, now_ns, is_bad, random);
      more |= back_.deliver(*second_, *first_, now_ns, is_bad, random);
      more |= wire_there_.deliver(*second_, now_ns, is_bad, random);
      more |= wire_back_.deliver(*first_, now_ns, is_bad, random);
    }
  }
  void settle() { settle(1 << 20, false, 0); }
  // The packets that took a way since this was asked last.
  std::array<std::vector<Seen>, 2> take_seen() {
    return {std::exchange(there_.seen, {}), std::exchange(back_.seen, {})};
  }
  // The same of the wire, as bytes.
  std::array<std::vector<SeenDatagram>, 2> take_datagrams() {
    return {std::exchange(wire_there_.seen, {}), std::exchange(wire_back_.seen, {})};
  }
  // As a driver does: at each deadline, so that what is due first is done first.
  void wait(std::uint64_t ns) {
    const std::uint64_t end_ns = now_ns + ns;
    for (;;) {
      std::uint64_t next_ns = first_->next_deadline_ns();
      if (second_) next_ns = std::min(next_ns, second_->next_deadline_ns());
      if (next_ns > end_ns) break;
      now_ns = std::max(now_ns, next_ns);
      advance();
    }
    now_ns = end_ns;
    advance();
  }

  std::array<End, 2> ends;
  std::uint64_t now_ns = 1'000'000;

 private:
  void advance() {
    first_->advance(now_ns);
    if (second_) second_->advance(now_ns);
    while (first_->exchange(now_ns) || (second_ && second_->exchange(now_ns))) {
    }
  }

  Observer* const observer_;
  Way there_;
  Way back_;
  Wire wire_there_;
  Wire wire_back_;
  std::unique_ptr<Adapter> first_;
  std::unique_ptr<Adapter> second_;
};

}  // namespace softhca::testing::twins
