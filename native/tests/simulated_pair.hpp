// Two adapters, a faulty wire between them, and virtual time: the whole transport without a socket
// or a clock.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "adapter/adapter.hpp"
#include "vocabulary/random.hpp"

namespace softhca::testing {

struct WireFaults {
  unsigned drop_percent = 0;
  unsigned duplicate_percent = 0;
  unsigned reorder_percent = 0;
  unsigned corrupt_percent = 0;
};

struct Host {
  std::unique_ptr<Adapter> adapter;
  std::uint32_t pd = 0;
  std::uint32_t cq = 0;

  explicit Host(std::uint8_t last_octet, std::uint64_t seed, bool lazy_acks = false) {
    AdapterConfig config;
    const std::uint8_t address[4] = {10, 0, 0, last_octet};
    config.gids = {Gid::from_ipv4(address)};
    config.seed = seed;
    config.icrc_level = IcrcLevel::STRICT;
    config.lazy_acks = lazy_acks;
    adapter = std::make_unique<Adapter>(config);
    pd = adapter->alloc_pd().value;
    cq = adapter->create_cq(4096).value;
  }

  MrInfo reg(std::vector<std::uint8_t>& bytes, std::uint32_t access = 0xf) {
    return adapter
        ->reg_mr(pd, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(),
                 reinterpret_cast<std::uint64_t>(bytes.data()), access)
        .value;
  }
  std::uint32_t qp(QpType type = QpType::RC, std::uint32_t depth = 64, std::uint32_t srq = 0) {
    QpInit init;
    init.type = type;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.cap = {depth, depth, 8, 8, 64};
    return adapter->create_qp(init).value;
  }
  std::vector<Completion> poll(std::uint32_t from = 0) {
    std::vector<Completion> out(4096);
    out.resize(adapter->poll_cq(from == 0 ? cq : from, out).value);
    return out;
  }
};

struct Pair {
  std::uint64_t now_ns = 1'000'000;
  Host a;
  Host b;
  Random random;
  WireFaults faults;
  // Sees every packet; false drops it.
  std::function<bool(bool from_a, const Packet&)> filter;
  std::uint64_t packets = 0;
  // As an engine does it: who sends goes on, and packets arrive together.
  bool in_trains = false;

  explicit Pair(std::uint64_t seed, bool lazy_acks = false)
      : a(1, seed, lazy_acks), b(2, seed + 1, lazy_acks), random(seed + 2) {}

  Host& host(bool is_a) { return is_a ? a : b; }

  // RESET to RTS against `remote_qpn` of the other host.
  Status connect(bool is_a, std::uint32_t qpn, QpType type, std::uint32_t remote_qpn,
                 std::uint32_t my_psn, std::uint32_t their_psn, std::uint8_t mtu = 3) {
    QpAttr attr;
    attr.qp_access_flags = 0xf;
    attr.qkey = 0x11111111;
    attr.path_mtu = mtu;
    attr.dest_qp_num = remote_qpn;
    attr.rq_psn = their_psn;
    attr.sq_psn = my_psn;
    attr.ah_attr.dgid = host(!is_a).adapter->config().gids[0];
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 12;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    const bool ud = type == QpType::UD;
    const bool answers = type == QpType::RC || type == QpType::XRC_RECV;
    const bool asks = type == QpType::RC || type == QpType::XRC_SEND;
    Adapter& adapter = *host(is_a).adapter;
    attr.qp_state = QpState::INIT;
    Status status = adapter.modify_qp(
        qpn, attr, kQpState | kQpPkeyIndex | kQpPort | (ud ? kQpQkey : kQpAccessFlags), now_ns);
    if (!status.ok()) {
      return status;
    }
    attr.qp_state = QpState::RTR;
    std::uint32_t mask = kQpState;
    mask |= ud ? 0 : kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
    mask |= answers ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0;
    status = adapter.modify_qp(qpn, attr, mask, now_ns);
    if (!status.ok()) {
      return status;
    }
    attr.qp_state = QpState::RTS;
    mask = kQpState | kQpSqPsn;
    mask |= asks ? kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic : 0u;
    mask |= type == QpType::XRC_RECV ? kQpTimeout : 0u;
    return adapter.modify_qp(qpn, attr, mask, now_ns);
  }

  // Moves packets and time until nothing is left to do, or `steps` packets and deadlines have
  // passed.
  void run(std::uint64_t steps = 1'000'000) {
    while (steps-- > 0 && step()) {
    }
  }

  bool step() {
    const bool moved = move(true) | move(false);
    if (moved) {
      return true;
    }
    const std::uint64_t next =
        std::min(a.adapter->next_deadline_ns(), b.adapter->next_deadline_ns());
    if (next == kNever) {
      return false;
    }
    now_ns = std::max(now_ns, next);
    a.adapter->advance(now_ns);
    b.adapter->advance(now_ns);
    return true;
  }

  Status send(bool is_a, std::uint32_t qpn, const SendWr& wr) {
    const SendWr* list[] = {&wr};
    std::size_t posted = 0;
    return host(is_a).adapter->post_send(qpn, list, posted, now_ns);
  }
  Status recv(bool is_a, std::uint32_t qpn, const RecvWr& wr) {
    const RecvWr* list[] = {&wr};
    std::size_t posted = 0;
    return host(is_a).adapter->post_recv(qpn, list, posted, now_ns);
  }

 private:
  struct Flying {
    Route route;
    std::vector<std::uint8_t> bytes;
  };

  bool chance(unsigned percent) { return percent != 0 && random.below(100) < percent; }

  // One packet from a host onto the wire, and what is on the wire to the other.
  bool move(bool from_a) {
    std::array<std::uint8_t, kMaxDatagramBytes> buffer;
    OutgoingPacket out;
    std::deque<Flying> flying;
    bool any = false;
    for (int batch = 0; batch < 16; ++batch) {
      if (in_trains && batch > 0) {
        host(from_a).adapter->keep_turn();
      }
      if (!host(from_a).adapter->next_packet(buffer, out, now_ns)) {
        break;
      }
      any = true;
      now_ns += 500;
      ++packets;
      Packet packet;
      if (decode_packet(out.datagram, packet) != DecodeStatus::OK) {
        ++malformed;
      }
      if (filter && !filter(from_a, packet)) {
        continue;
      }
      if (chance(faults.drop_percent)) {
        continue;
      }
      Flying one{out.route, {out.datagram.begin(), out.datagram.end()}};
      if (chance(faults.duplicate_percent)) {
        flying.push_back(one);
      }
      if (chance(faults.corrupt_percent)) {
        one.bytes[random.below(one.bytes.size())] ^=
            static_cast<std::uint8_t>(1 + random.below(255));
      }
      if (chance(faults.reorder_percent) && !flying.empty()) {
        flying.push_front(one);
      } else {
        flying.push_back(one);
      }
    }
    for (const Flying& one : flying) {
      now_ns += 500;
      const bool more = in_trains && &one != &flying.back();
      host(!from_a).adapter->receive(one.route, one.bytes, now_ns, more);
    }
    return any;
  }

 public:
  std::uint64_t malformed = 0;
};

}  // namespace softhca::testing
