// Reliability under a wire that drops, duplicates, reorders and corrupts: every byte right, every
// atomic exactly once.

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"
#include "wire/syndrome.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint32_t kPsnA = 0xfffff0;  // Wraps within the first messages.
constexpr std::uint32_t kPsnB = 0x000010;

struct Connected : Pair {
  std::uint32_t qa;
  std::uint32_t qb;

  explicit Connected(std::uint64_t run_seed) : Pair(run_seed), qa(a.qp()), qb(b.qp()) {
    CHECK(connect(true, qa, QpType::RC, qb, kPsnA, kPsnB).ok());
    CHECK(connect(false, qb, QpType::RC, qa, kPsnB, kPsnA).ok());
  }
};

std::uint64_t address_of(const std::vector<std::uint8_t>& bytes, std::size_t offset = 0) {
  return reinterpret_cast<std::uint64_t>(bytes.data()) + offset;
}

// False if the requester has given up, as it may on a wire that loses half of the packets: eight
// times in a row the request or its acknowledgement.
bool all_succeed(const std::vector<Completion>& completions, std::size_t count,
                 std::uint64_t first_wr_id) {
  CHECK_EQ(completions.size(), count);
  for (std::size_t at = 0; at < count; ++at) {
    CHECK_EQ(completions[at].wr_id, first_wr_id + at);
    if (completions[at].status == WcStatus::RETRY_EXC_ERR) return false;
    CHECK_EQ(static_cast<int>(completions[at].status), 0);
  }
  return true;
}

bool write_then_read(Connected& pair, std::size_t size) {
  std::vector<std::uint8_t> source(size);
  std::vector<std::uint8_t> remote(size);
  std::vector<std::uint8_t> back(size);
  for (auto& byte : source) {
    byte = static_cast<std::uint8_t>(pair.random.next());
  }
  SendWr wr;
  wr.wr_id = 1;
  wr.opcode = WrOpcode::RDMA_WRITE;
  wr.send_flags = kSendSignaled;
  wr.remote_address = address_of(remote);
  wr.rkey = pair.b.reg(remote).rkey;
  wr.sges = {{address_of(source), static_cast<std::uint32_t>(size), pair.a.reg(source).lkey}};
  CHECK(pair.send(true, pair.qa, wr).ok());
  wr.wr_id = 2;
  wr.opcode = WrOpcode::RDMA_READ;
  wr.sges = {{address_of(back), static_cast<std::uint32_t>(size), pair.a.reg(back).lkey}};
  CHECK(pair.send(true, pair.qa, wr).ok());
  pair.run();
  if (!all_succeed(pair.a.poll(), 2, 1)) return false;
  CHECK(source == remote);
  CHECK(source == back);
  return true;
}

bool count_exactly_once(Connected& pair) {
  constexpr std::size_t kAdds = 64;
  std::vector<std::uint8_t> target(8);
  std::vector<std::uint8_t> originals(8 * kAdds);
  SendWr wr;
  wr.opcode = WrOpcode::ATOMIC_FETCH_AND_ADD;
  wr.send_flags = kSendSignaled;
  wr.remote_address = address_of(target);
  wr.rkey = pair.b.reg(target).rkey;
  wr.compare_add = 3;
  const std::uint32_t lkey = pair.a.reg(originals).lkey;
  for (std::size_t at = 0; at < kAdds; ++at) {
    wr.wr_id = at;
    wr.sges = {{address_of(originals, 8 * at), 8, lkey}};
    CHECK(pair.send(true, pair.qa, wr).ok());
  }
  pair.run();
  if (!all_succeed(pair.a.poll(), kAdds, 0)) return false;
  for (std::size_t at = 0; at < kAdds; ++at) {
    std::uint64_t original = 0;
    std::memcpy(&original, originals.data() + 8 * at, 8);
    CHECK_EQ(original, 3 * at);
  }
  return true;
}

bool send_in_order(Connected& pair) {
  constexpr std::size_t kMessages = 64;
  constexpr std::size_t kRoom = 4500;
  std::vector<std::uint8_t> source(kMessages * 70 + 8 * kMessages);
  std::vector<std::uint8_t> received(kMessages * kRoom);
  for (auto& byte : source) {
    byte = static_cast<std::uint8_t>(pair.random.next());
  }
  const std::uint32_t lkey = pair.a.reg(source).lkey;
  const std::uint32_t recv_lkey = pair.b.reg(received).lkey;
  for (std::size_t at = 0; at < kMessages; ++at) {
    RecvWr recv;
    recv.wr_id = 1000 + at;
    recv.sges = {{address_of(received, at * kRoom), 100, recv_lkey},
                 {address_of(received, at * kRoom + 100), kRoom - 100, recv_lkey}};
    CHECK(pair.recv(false, pair.qb, recv).ok());
    SendWr send;
    send.wr_id = at;
    send.send_flags = kSendSignaled;
    send.sges = {{address_of(source, 8 * at), static_cast<std::uint32_t>(70 * at), lkey}};
    CHECK(pair.send(true, pair.qa, send).ok());
  }
  pair.run();
  if (!all_succeed(pair.a.poll(), kMessages, 0)) return false;
  const std::vector<Completion> arrived = pair.b.poll();
  CHECK(all_succeed(arrived, kMessages, 1000));
  for (std::size_t at = 0; at < kMessages; ++at) {
    CHECK_EQ(arrived[at].byte_len, 70 * at);
    CHECK(std::memcmp(&received[at * kRoom], &source[8 * at], 70 * at) == 0);
  }
  return true;
}

void survive(unsigned percent, unsigned runs) {
  unsigned given_up = 0;
  for (std::uint64_t run = 0; run < runs; ++run) {
    Connected pair(seed() + run);
    pair.faults = {percent, percent, percent, percent};
    if (!write_then_read(pair, 1 + pair.random.below(120'000)) || !count_exactly_once(pair) ||
        !send_in_order(pair)) {
      ++given_up;
      continue;
    }
    CHECK_EQ(pair.malformed, 0u);
    if (percent == 0) {
      CHECK_EQ(pair.a.adapter->counters().retransmitted_pkts, 0u);
    } else if (percent >= 5) {
      CHECK(pair.a.adapter->counters().retransmitted_pkts > 0);
      CHECK(pair.b.adapter->counters().rx_icrc_encapsulated > 0);
    }
  }
  CHECK(given_up <= (percent < 20 ? 0 : runs / 20));
}

TEST("transport: a clean wire needs no retransmission") { survive(0, 20); }
TEST("transport: 1 % of each fault") { survive(1, 100); }
TEST("transport: 5 % of each fault") { survive(5, 100); }
TEST("transport: 20 % of each fault") { survive(20, 100); }

TEST("transport: the same seed gives the same packets and the same time") {
  const auto trace = [](std::uint64_t run_seed) {
    Connected pair(run_seed);
    pair.faults = {10, 10, 10, 10};
    std::vector<std::uint64_t> seen;
    pair.filter = [&seen](bool from_a, const Packet& packet) {
      seen.push_back(std::uint64_t{from_a} << 40 | std::uint64_t{packet.bth.opcode} << 24 |
                     packet.bth.psn);
      return true;
    };
    count_exactly_once(pair);
    seen.push_back(pair.now_ns);
    return seen;
  };
  CHECK(trace(seed()) == trace(seed()));
  CHECK(trace(seed()) != trace(seed() + 1));
}

TEST("transport: a mute peer costs exactly retry_cnt retries") {
  Connected pair(seed());
  unsigned sent = 0;
  pair.filter = [&sent](bool, const Packet&) {
    ++sent;
    return false;
  };
  SendWr wr;
  CHECK(pair.send(true, pair.qa, wr).ok());
  const std::uint64_t began_ns = pair.now_ns;
  pair.run();
  const std::vector<Completion> completions = pair.a.poll();
  CHECK_EQ(completions.size(), 1u);
  CHECK_EQ(static_cast<int>(completions[0].status), static_cast<int>(WcStatus::RETRY_EXC_ERR));
  CHECK_EQ(sent, 8u);
  // Never shorter than 4.096 us x 2^12 each.
  CHECK(pair.now_ns - began_ns >= 8 * ack_timeout_ns(12));
}

}  // namespace
}  // namespace softhca::testing
