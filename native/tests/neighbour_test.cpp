#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "tests/neighbour_pair.hpp"
#include "tests/neighbour_segments.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

using testing::kPatienceNs;
using testing::NeighbourPair;
using testing::pattern;
using testing::rdma;
using testing::Segments;

// Pages that may be unmapped while they are registered.
struct Pages {
  explicit Pages(std::size_t bytes)
      : length(bytes),
        at(static_cast<std::uint8_t*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  // The addresses stay taken: another thread's memory could come to lie there.
  void unmap() {
    CHECK(mmap(at, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(at); }
  std::size_t length;
  std::uint8_t* at;
};

MrInfo reg_at(testing::DriverHost& host, std::uint64_t address, std::size_t length) {
  return host
      .call(
          [&](Adapter& adapter) { return adapter.reg_mr(host.pd, address, length, address, 0xf); })
      .value;
}

Status to_error(testing::DriverHost& host, std::uint32_t qpn) {
  QpAttr attr;
  attr.qp_state = QpState::ERR;
  return host.driver().with_adapter([&](Adapter& adapter, std::uint64_t now_ns) {
    return adapter.modify_qp(qpn, attr, kQpState, now_ns);
  });
}

TEST("neighbour: every operation, every size, and not one datagram") {
  NeighbourPair pair;
  for (const std::size_t size :
       {1u, 64u, 1024u, 1025u, 4096u, 4097u, 65'536u, 300'001u, 3'000'000u}) {
    auto local = pattern(size, 1);
    auto remote = pattern(size, 2);
    const MrInfo local_mr = pair.a.reg(local);
    const MrInfo remote_mr = pair.b.reg(remote);
    CHECK(pair.a.send(pair.qp_a, rdma(WrOpcode::RDMA_WRITE, local, local_mr, remote, remote_mr))
              .ok());
    CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
    CHECK(local == remote);
    std::ranges::copy(pattern(size, 3), remote.begin());
    CHECK(
        pair.a.send(pair.qp_a, rdma(WrOpcode::RDMA_READ, local, local_mr, remote, remote_mr)).ok());
    CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
    CHECK(local == remote);
    std::ranges::copy(pattern(size, 4), local.begin());
    RecvWr receive;
    receive.sges = {{reinterpret_cast<std::uint64_t>(remote.data()),
                     static_cast<std::uint32_t>(size), remote_mr.lkey}};
    CHECK(pair.b.recv(pair.qp_b, receive).ok());
    CHECK(pair.a.send(pair.qp_a, rdma(WrOpcode::SEND, local, local_mr, remote, remote_mr)).ok());
    CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
    const Completion received = pair.b.wait();
    CHECK_EQ(received.status, WcStatus::SUCCESS);
    CHECK_EQ(received.byte_len, size);
    CHECK(local == remote);
  }
  pair.check_no_datagrams();
}

TEST("neighbour: packets and bytes are counted as they are over the network") {
  const auto counted = [](auto& pair) {
    auto local = pattern(100'000, 1);
    auto remote = pattern(100'000, 2);
    const MrInfo local_mr = pair.a.reg(local);
    const MrInfo remote_mr = pair.b.reg(remote);
    for (const WrOpcode opcode : {WrOpcode::RDMA_WRITE, WrOpcode::SEND}) {
      RecvWr receive;
      receive.sges = {{reinterpret_cast<std::uint64_t>(remote.data()), 100'000, remote_mr.lkey}};
      CHECK(pair.b.recv(pair.qp_b, receive).ok());
      CHECK(pair.a.send(pair.qp_a, rdma(opcode, local, local_mr, remote, remote_mr)).ok());
      CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
    }
    return pair.a.call([&](Adapter& adapter) { return adapter.qp_counters(pair.qp_a); }).value;
  };
  NeighbourPair near;
  testing::DriverPair far;
  const Counters here = counted(near);
  const Counters there = counted(far);
  near.check_no_datagrams();
  // Neither is spared repeats, where a peer gets no processor for long.
  CHECK_EQ(here.sent_pkts - here.retransmitted_pkts, there.sent_pkts - there.retransmitted_pkts);
  if (here.retransmitted_pkts + there.retransmitted_pkts == 0) {
    CHECK_EQ(here.sent_bytes, there.sent_bytes);
  }
}

TEST("neighbour: a payload that is not there fails its sender, and nobody else") {
  std::vector<std::uint8_t> target = pattern(65'536, 1);
  NeighbourPair pair;
  Pages gone(65'536);
  const MrInfo gone_mr = reg_at(pair.a, gone.address(), gone.length);
  const MrInfo target_mr = pair.b.reg(target);
  gone.unmap();
  SendWr write;
  write.opcode = WrOpcode::RDMA_WRITE;
  write.send_flags = kSendSignaled;
  write.remote_address = reinterpret_cast<std::uint64_t>(target.data());
  write.rkey = target_mr.rkey;
  write.sges = {{gone.address(), 65'536, gone_mr.lkey}};
  CHECK(pair.a.send(pair.qp_a, write).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::LOC_PROT_ERR);
  CHECK(target == pattern(65'536, 1));
}

TEST("neighbour: a READ of memory that is gone is refused") {
  std::vector<std::uint8_t> local = pattern(65'536, 1);
  NeighbourPair pair;
  Pages gone(65'536);
  const MrInfo gone_mr = reg_at(pair.b, gone.address(), gone.length);
  const MrInfo local_mr = pair.a.reg(local);
  gone.unmap();
  SendWr read;
  read.opcode = WrOpcode::RDMA_READ;
  read.send_flags = kSendSignaled;
  read.remote_address = gone.address();
  read.rkey = gone_mr.rkey;
  read.sges = {{reinterpret_cast<std::uint64_t>(local.data()), 65'536, local_mr.lkey}};
  CHECK(pair.a.send(pair.qp_a, read).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::REM_ACCESS_ERR);
}

TEST("neighbour: what a queue pair had lent is not fetched after its requests were flushed") {
  auto local = pattern(200'000, 1);
  auto remote = pattern(200'000, 2);
  auto probe = pattern(100, 3);
  auto probed = pattern(100, 4);
  NeighbourPair pair;
  const auto [second_a, second_b] = pair.connect_another();
  static_cast<void>(second_b);
  const MrInfo local_mr = pair.a.reg(local);
  const MrInfo remote_mr = pair.b.reg(remote);
  const SendWr write = rdma(WrOpcode::RDMA_WRITE, local, local_mr, remote, remote_mr);
  {
    const std::lock_guard held(pair.b.device.adapter->mutex);  // It fetches nothing now.
    CHECK(pair.a.send(pair.qp_a, write).ok());
    CHECK(to_error(pair.a, pair.qp_a).ok());
    CHECK_EQ(pair.a.wait().status, WcStatus::WR_FLUSH_ERR);
    std::ranges::fill(local, std::uint8_t{0});
  }
  const MrInfo probe_mr = pair.a.reg(probe);
  const MrInfo probed_mr = pair.b.reg(probed);
  CHECK(pair.a.send(second_a, rdma(WrOpcode::RDMA_WRITE, probe, probe_mr, probed, probed_mr)).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
  CHECK(remote == pattern(200'000, 2));
}

TEST("neighbour: what lies in a region that is deregistered is not fetched any more") {
  auto local = pattern(200'000, 1);
  auto remote = pattern(200'000, 2);
  NeighbourPair pair;
  const MrInfo local_mr = pair.a.reg(local);
  const MrInfo remote_mr = pair.b.reg(remote);
  {
    const std::lock_guard held(pair.b.device.adapter->mutex);
    CHECK(pair.a.send(pair.qp_a, rdma(WrOpcode::RDMA_WRITE, local, local_mr, remote, remote_mr))
              .ok());
    CHECK(pair.a.call([&](Adapter& adapter) { return adapter.dereg_mr(local_mr.handle); }).ok());
    std::ranges::fill(local, std::uint8_t{0});
  }
  CHECK_EQ(pair.a.wait().status, WcStatus::LOC_PROT_ERR);
  CHECK(remote == pattern(200'000, 2));
}

TEST("neighbour: more than the ring holds waits for room, and all of it arrives in order") {
  std::vector<std::uint8_t> local = pattern(1000, 1);
  std::vector<std::uint8_t> remote(1000);
  NeighbourPair pair;
  const MrInfo local_mr = pair.a.reg(local);
  const MrInfo remote_mr = pair.b.reg(remote);
  SendWr write = rdma(WrOpcode::RDMA_WRITE, local, local_mr, remote, remote_mr);
  std::vector<std::uint32_t> qps;
  for (int i = 0; i < 7; ++i) qps.push_back(pair.connect_another().first);
  int posted = 0;
  {
    const std::lock_guard held(pair.b.device.adapter->mutex);
    for (const std::uint32_t qpn : qps) {
      for (int i = 0; i < 128; ++i, ++posted) {
        write.wr_id = static_cast<std::uint64_t>(i);
        CHECK(pair.a.send(qpn, write).ok());
      }
    }
  }
  std::vector<std::uint64_t> next(1u << 24);
  for (int i = 0; i < posted; ++i) {
    const Completion done = pair.a.wait();
    CHECK_EQ(done.status, WcStatus::SUCCESS);
    CHECK_EQ(done.wr_id, next[done.qpn]++);
  }
  pair.check_no_datagrams();
}

TEST("neighbour: one that has gone costs the retries, as a host that crashed does") {
  std::vector<std::uint8_t> local = pattern(1000, 1);
  std::vector<std::uint8_t> remote(1000);
  NeighbourPair pair;
  const MrInfo local_mr = pair.a.reg(local);
  const MrInfo remote_mr = pair.b.reg(remote);
  const std::uint32_t impatient = pair.connect_another(14).first;  // 67 ms.
  pair.b.driver().close();
  CHECK(
      pair.a.send(impatient, rdma(WrOpcode::RDMA_WRITE, local, local_mr, remote, remote_mr)).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::RETRY_EXC_ERR);
}

// Races with the devices on purpose, as a peer gone mad would.
[[gnu::no_sanitize("thread")]] void scribble(std::span<std::uint8_t> segment, Random& random) {
  volatile std::uint8_t* bytes = segment.data();
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t cell = random.below(256) * kCellBytes + random.below(32);
    bytes[cell % segment.size()] =
        static_cast<std::uint8_t>(random.below(4) == 0 ? random.next() : random.below(6));
  }
}

TEST("neighbour: shared memory that somebody scribbles over harms nobody else's memory") {
  Random random(testing::seed());
  for (int round = 0; round < 8; ++round) {
    auto local = pattern(50'000, 1);
    auto remote = pattern(150'000, 2);
    NeighbourPair pair;
    const MrInfo local_mr = pair.a.reg(local);
    const auto middle = reinterpret_cast<std::uint64_t>(remote.data()) + 50'000;
    const MrInfo remote_mr = reg_at(pair.b, middle, 50'000);
    SendWr write = rdma(WrOpcode::RDMA_WRITE, local, local_mr, remote, remote_mr);
    write.remote_address = middle;
    const Segments segments;
    CHECK(!segments.mapped.empty());
    for (int i = 0; i < 100; ++i) {
      static_cast<void>(pair.a.send(pair.qp_a, write));
      for (const auto& segment : segments.mapped) scribble(segment, random);
      std::array<Completion, 16> out;
      static_cast<void>(pair.a.driver().poll_cq(pair.a.cq, out));
    }
    const auto kept = pattern(150'000, 2);
    CHECK(std::equal(remote.begin(), remote.begin() + 50'000, kept.begin()));
    CHECK(std::equal(remote.begin() + 100'000, remote.end(), kept.begin() + 100'000));
  }
}

}  // namespace
}  // namespace softhca
