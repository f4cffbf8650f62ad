// Payloads that are summed while they are fetched: of every length, and of memory that goes away.

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "memory/guarded_access.hpp"
#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint8_t kMtu4096 = 5;

// A pair that is connected with the longest packets there are; who receives checks each ICRC.
struct LongPair {
  Pair pair{seed()};
  std::uint32_t qa = pair.a.qp();
  std::uint32_t qb = pair.b.qp();

  LongPair() {
    CHECK(pair.connect(true, qa, QpType::RC, qb, 0xfffff0, 5, kMtu4096).ok());
    CHECK(pair.connect(false, qb, QpType::RC, qa, 5, 0xfffff0, kMtu4096).ok());
  }

  WcStatus move(WrOpcode opcode, const Sge& local, std::uint64_t remote, std::uint32_t rkey) {
    SendWr wr;
    wr.opcode = opcode;
    wr.send_flags = kSendSignaled;
    wr.remote_address = remote;
    wr.rkey = rkey;
    wr.sges = {local};
    CHECK(pair.send(true, qa, wr).ok());
    pair.run();
    const std::vector<Completion> completions = pair.a.poll();
    CHECK_EQ(completions.size(), 1u);
    return completions[0].status;
  }
};

std::uint64_t address_of(const std::uint8_t* at) { return reinterpret_cast<std::uint64_t>(at); }

TEST("long payloads: every length arrives as it is, and no ICRC is wrong") {
  LongPair both;
  Pair& pair = both.pair;
  Random random(seed() + 7);
  constexpr std::size_t kMost = 3 * 4096;
  std::vector<std::uint8_t> here(kMost + 64);
  std::vector<std::uint8_t> there(kMost + 64);
  const MrInfo near = pair.a.reg(here);
  const MrInfo far = pair.b.reg(there);
  for (int round = 0; round < 600; ++round) {
    const std::size_t bytes =
        round < 300 ? 1900 + static_cast<std::size_t>(round) : random.below(kMost) + 1;
    const std::size_t from = random.below(64);
    const std::size_t to = random.below(64);
    const WrOpcode opcode = random.below(3) == 0   ? WrOpcode::RDMA_READ
                            : random.below(2) == 0 ? WrOpcode::RDMA_WRITE
                                                   : WrOpcode::SEND;
    const bool reads = opcode == WrOpcode::RDMA_READ;
    std::vector<std::uint8_t>& source = reads ? there : here;
    std::vector<std::uint8_t>& target = reads ? here : there;
    for (std::uint8_t& byte : source) byte = static_cast<std::uint8_t>(random.next());
    std::vector<std::uint8_t> expected = target;
    std::copy_n(source.begin() + static_cast<long>(from), bytes,
                expected.begin() + static_cast<long>(to));
    const auto length = static_cast<std::uint32_t>(bytes);
    if (opcode == WrOpcode::SEND) {
      RecvWr recv;
      recv.sges = {{address_of(there.data()) + to, length, far.lkey}};
      CHECK(pair.recv(false, both.qb, recv).ok());
    }
    const std::size_t local = reads ? to : from;
    const std::size_t remote = reads ? from : to;
    CHECK(both.move(opcode, {address_of(here.data()) + local, length, near.lkey},
                    address_of(there.data()) + remote, far.rkey) == WcStatus::SUCCESS);
    CHECK(target == expected);
    static_cast<void>(pair.b.poll());
  }
  CHECK_EQ(pair.a.adapter->counters().rx_icrc_encapsulated, 0u);
  CHECK_EQ(pair.b.adapter->counters().rx_icrc_encapsulated, 0u);
  CHECK_EQ(pair.a.adapter->counters().retransmitted_pkts, 0u);
}

// Pages of which the last goes away after they were registered.
struct Pages {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = 3 * page;
  std::uint8_t* const at = static_cast<std::uint8_t*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

  Pages() { install_fault_guard(); }
  ~Pages() { munmap(at, bytes - page); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  MrInfo reg(Host& host) const {
    return host.adapter->reg_mr(host.pd, address_of(at), bytes, address_of(at), 0xf).value;
  }
  void lose_last() const { munmap(at + bytes - page, page); }
};

TEST("long payloads: what goes away in the middle of a packet fails the request") {
  for (const bool reads : {false, true}) {
    LongPair both;
    Pair& pair = both.pair;
    const Pages pages;
    std::vector<std::uint8_t> other(pages.bytes, 1);
    const MrInfo going = pages.reg(reads ? pair.b : pair.a);
    const MrInfo staying = (reads ? pair.a : pair.b).reg(other);
    pages.lose_last();
    // The last packet begins in what is there.
    const std::uint64_t from = address_of(pages.at) + 1000;
    const auto length = static_cast<std::uint32_t>(pages.bytes - 1000);
    const WcStatus status =
        reads ? both.move(WrOpcode::RDMA_READ, {address_of(other.data()), length, staying.lkey},
                          from, going.rkey)
              : both.move(WrOpcode::RDMA_WRITE, {from, length, going.lkey},
                          address_of(other.data()), staying.rkey);
    CHECK(status == (reads ? WcStatus::REM_ACCESS_ERR : WcStatus::LOC_PROT_ERR));
    CHECK_EQ(pair.a.adapter->counters().rx_icrc_encapsulated, 0u);
    CHECK_EQ(pair.b.adapter->counters().rx_icrc_encapsulated, 0u);
  }
}

TEST("long payloads: who goes on with a message in one round is last in the next") {
  LongPair both;
  Pair& pair = both.pair;
  const std::uint32_t others[2] = {pair.a.qp(), pair.b.qp()};
  CHECK(pair.connect(true, others[0], QpType::RC, others[1], 0, 0, kMtu4096).ok());
  CHECK(pair.connect(false, others[1], QpType::RC, others[0], 0, 0, kMtu4096).ok());
  std::vector<std::uint8_t> bytes(64 * 4096);
  std::vector<std::uint8_t> there(bytes.size());
  const MrInfo near = pair.a.reg(bytes);
  const MrInfo far = pair.b.reg(there);
  SendWr wr;
  wr.opcode = WrOpcode::RDMA_WRITE;
  wr.rkey = far.rkey;
  wr.remote_address = address_of(there.data());
  wr.sges = {{address_of(bytes.data()), static_cast<std::uint32_t>(bytes.size()), near.lkey}};
  CHECK(pair.send(true, both.qa, wr).ok());
  CHECK(pair.send(true, others[0], wr).ok());
  std::array<std::uint8_t, kMaxDatagramBytes> buffer;
  OutgoingPacket out;
  for (int round = 0; round < 6; ++round) {
    for (int packet = 0; packet < 5; ++packet) {
      if (packet > 0) pair.a.adapter->keep_turn();
      CHECK(pair.a.adapter->next_packet(buffer, out, pair.now_ns));
      CHECK_EQ(out.qpn, round % 2 == 0 ? both.qa : others[0]);
    }
  }
}

}  // namespace
}  // namespace softhca::testing
