// Two neighbourhoods without drivers, so that nobody looks at the ring in between.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "neighbour/neighbourhood.hpp"
#include "tests/check.hpp"
#include "tests/own_address.hpp"
#include "tests/patience.hpp"

namespace softhca::testing::sides {

inline constexpr std::uint64_t kNow = 1'000'000;
inline constexpr std::uint32_t kBytes = 100'000;  // More than one record of a ring brings.

inline AdapterConfig config_of(std::uint8_t host) {
  AdapterConfig config;
  config.gids = {own_address(host)};
  config.shortcut = true;
  return config;
}

struct Side {
  explicit Side(std::uint8_t host, QpType qp_type = QpType::RC)
      : type(qp_type), adapter(config_of(host)) {
    LocalAddress local;
    local.gid = gid();
    neighbours = Neighbourhood::open(local, mutex, adapter);
    CHECK(neighbours != nullptr);
    adapter.set_paths(neighbours.get());
    pd = adapter.alloc_pd().value;
    cq = adapter.create_cq(16).value;
    const auto address = reinterpret_cast<std::uint64_t>(bytes);
    mr = adapter.reg_mr(pd, address, kBytes, address, 0xf).value;
    QpInit init;
    init.type = type;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.cap = {8, 8, 1, 1, 0};
    qpn = adapter.create_qp(init).value;
  }
  const Gid& gid() const { return adapter.config().gids[0]; }
  Sge sge() const { return {reinterpret_cast<std::uint64_t>(bytes), kBytes, mr.lkey}; }

  void modify(const QpAttr& attr, std::uint32_t mask) {
    CHECK(adapter.modify_qp(qpn, attr, mask, kNow).ok());
  }
  void connect(const Side& peer, std::uint8_t retries = 7) {
    connect(peer.gid(), peer.qpn, retries);
  }
  void connect(const Gid& peer, std::uint32_t peer_qpn, std::uint8_t retries = 7) {
    QpAttr attr;
    attr.qp_state = QpState::INIT;
    attr.qp_access_flags = 0xf;
    modify(attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags);
    attr.qp_state = QpState::RTR;
    attr.ah_attr.dgid = peer;
    attr.path_mtu = 4;
    attr.dest_qp_num = peer_qpn;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    const bool acknowledged = type == QpType::RC;
    modify(attr, kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn |
                     (acknowledged ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0u));
    attr.qp_state = QpState::RTS;
    attr.timeout = 14;
    attr.retry_cnt = retries;
    attr.rnr_retry = 7;
    modify(attr,
           kQpState | kQpSqPsn |
               (acknowledged ? kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic : 0u));
  }
  // It is gone as if its process had ended.
  void go() {
    adapter.set_paths(nullptr);
    neighbours.reset();
  }

  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes); }

  const QpType type;
  alignas(8) std::uint8_t bytes[kBytes] = {};
  ShortMutex mutex;
  Adapter adapter;
  std::unique_ptr<Neighbourhood> neighbours;
  std::uint32_t pd = 0;
  std::uint32_t cq = 0;
  MrInfo mr;
  std::uint32_t qpn = 0;
};

// All of one's memory and of the other's.
inline SendWr work(WrOpcode opcode, const Side& here, const Side& there) {
  SendWr wr;
  wr.opcode = opcode;
  wr.send_flags = kSendSignaled;
  wr.sges = {here.sge()};
  wr.remote_address = there.address();
  wr.rkey = there.mr.rkey;
  return wr;
}

// They leave at once.
inline void post(Side& side, const std::vector<SendWr>& wrs) {
  std::vector<const SendWr*> list;
  for (const SendWr& wr : wrs) list.push_back(&wr);
  std::size_t posted = 0;
  CHECK(side.adapter.post_send(side.qpn, list, posted, kNow).ok());
  CHECK(!side.adapter.exchange(kNow));
}

// Both know each other, and are connected.
inline void introduce(Side& one, Side& other) {
  std::atomic<bool> met{false};
  std::thread server([&] {
    while (!met.load()) other.neighbours->serve();
  });
  one.neighbours->meet(other.gid(), kPatienceMs);
  met.store(true);
  server.join();
  CHECK(one.neighbours->is_inhabited());
  one.connect(other);
  other.connect(one);
}

}  // namespace softhca::testing::sides
