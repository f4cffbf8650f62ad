// Opened devices on addresses of their own, and RC queue pairs between them: the whole stack over
// the kernel's UDP.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "driver/open_device.hpp"
#include "tests/check.hpp"
#include "tests/patience.hpp"

namespace softhca::testing {

// A second for each of eight tries: a peer whose thread gets no processor for seconds is no dead
// one.
inline constexpr std::uint8_t kAckTimeout = 18;

struct DriverHost {
  OpenedDevice device;
  std::uint32_t pd = 0;
  std::uint32_t cq = 0;

  template <class Function>
  auto call(Function&& function) {
    return driver().with_adapter(
        [&](Adapter& adapter, std::uint64_t) { return function(adapter); });
  }

  explicit DriverHost(const OpenOptions& options = {}) {
    const DriverError error = open_device(options, device);
    if (!error.ok()) std::printf("%s\n", error.message.c_str());
    CHECK(error.ok());
    pd = call([](Adapter& adapter) { return adapter.alloc_pd(); }).value;
    cq = call([](Adapter& adapter) { return adapter.create_cq(1024); }).value;
  }

  Driver& driver() { return *device.driver; }
  const Gid& gid() const { return device.local.gid; }

  MrInfo reg(std::vector<std::uint8_t>& bytes, std::uint32_t access = 0xf) {
    const auto address = reinterpret_cast<std::uint64_t>(bytes.data());
    return call([&](Adapter& adapter) {
             return adapter.reg_mr(pd, address, bytes.size(), address, access);
           })
        .value;
  }

  std::uint32_t create_qp() {
    QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.cap = {128, 128, 4, 4, 64};
    return call([&](Adapter& adapter) { return adapter.create_qp(init); }).value;
  }

  void connect(std::uint32_t qpn, const Gid& peer, std::uint32_t peer_qpn,
               std::uint8_t timeout = kAckTimeout) {
    QpAttr attr;
    attr.qp_access_flags = 0xf;
    attr.path_mtu = 5;
    attr.dest_qp_num = peer_qpn;
    attr.ah_attr.dgid = peer;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = timeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    const std::uint32_t rtr_mask =
        kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
    const std::uint32_t rts_mask =
        kQpState | kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
    const auto modify = [&](QpState state, std::uint32_t mask) {
      attr.qp_state = state;
      const Status status = driver().with_adapter([&](Adapter& adapter, std::uint64_t now_ns) {
        return adapter.modify_qp(qpn, attr, mask, now_ns);
      });
      CHECK(status.ok());
    };
    modify(QpState::INIT, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags);
    modify(QpState::RTR, rtr_mask);
    modify(QpState::RTS, rts_mask);
  }

  Status send(std::uint32_t qpn, const SendWr& wr) {
    return driver().with_adapter([&](Adapter& adapter, std::uint64_t now_ns) {
      const SendWr* list[] = {&wr};
      std::size_t posted = 0;
      return adapter.post_send(qpn, list, posted, now_ns);
    });
  }

  Status recv(std::uint32_t qpn, const RecvWr& wr) {
    return driver().with_adapter([&](Adapter& adapter, std::uint64_t now_ns) {
      const RecvWr* list[] = {&wr};
      std::size_t posted = 0;
      return adapter.post_recv(qpn, list, posted, now_ns);
    });
  }

  // Polls until a completion comes. One that never comes has the status GENERAL_ERR.
  Completion wait(std::uint32_t from = 0) {
    std::array<Completion, 1> out;
    const std::uint64_t until_ns = monotonic_ns() + kPatienceNs;
    while (monotonic_ns() < until_ns) {
      if (driver().poll_cq(from == 0 ? cq : from, out).value == 1) return out[0];
    }
    out[0].status = WcStatus::GENERAL_ERR;
    return out[0];
  }
};

struct DriverPair {
  DriverHost a;
  DriverHost b;
  std::uint32_t qp_a = 0;
  std::uint32_t qp_b = 0;

  explicit DriverPair(const OpenOptions& options_a = {}, const OpenOptions& options_b = {},
                      std::uint8_t timeout = kAckTimeout)
      : a(options_a), b(options_b) {
    qp_a = a.create_qp();
    qp_b = b.create_qp();
    a.connect(qp_a, b.gid(), qp_b, timeout);
    b.connect(qp_b, a.gid(), qp_a, timeout);
  }
};

inline std::vector<std::uint8_t> pattern(std::size_t size, std::uint8_t seed) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 31 + seed);
  return bytes;
}

inline SendWr rdma(WrOpcode opcode, const std::vector<std::uint8_t>& local, const MrInfo& local_mr,
                   const std::vector<std::uint8_t>& remote, const MrInfo& remote_mr) {
  SendWr wr;
  wr.opcode = opcode;
  wr.send_flags = kSendSignaled;
  wr.remote_address = reinterpret_cast<std::uint64_t>(remote.data());
  wr.rkey = remote_mr.rkey;
  wr.sges = {{reinterpret_cast<std::uint64_t>(local.data()),
              static_cast<std::uint32_t>(local.size()), local_mr.lkey}};
  return wr;
}

}  // namespace softhca::testing
