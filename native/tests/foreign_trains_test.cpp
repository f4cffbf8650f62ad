// The memory of other processes, read ahead and written behind for packets that leave or arrive
// together: fewer calls, and nothing else is to be seen of it.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"

namespace softhca::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kBegin = 0x10000;
constexpr std::size_t kMtu = 1024;  // Of the pair's connections.

// What another process has from kBegin on, up to where it has gone.
class FarMemory final : public AddressSpace {
 public:
  explicit FarMemory(std::size_t size) : bytes(size), there(size) { foreign_.number = 1; }

  const ForeignMemory* foreign() const override { return &foreign_; }
  bool copy_in(std::uint64_t address, ByteSpan to) override {
    ++reads;
    if (!is_there(address, to.size())) return false;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(address - kBegin), to.size(),
                to.begin());
    return true;
  }
  bool copy_out(std::uint64_t address, ByteView from) override {
    ++writes;
    return put(address, from);
  }
  bool copy_out_all(std::uint64_t address, std::span<const ByteView> from) override {
    ++writes;
    for (const ByteView& piece : from) {
      if (!put(address, piece)) return false;
      address += piece.size();
    }
    return true;
  }
  bool fetch_add(std::uint64_t address, std::uint64_t addend, std::uint64_t& original) override {
    std::memcpy(&original, &bytes[address - kBegin], sizeof original);
    const std::uint64_t sum = original + addend;
    std::memcpy(&bytes[address - kBegin], &sum, sizeof sum);
    return true;
  }
  bool compare_swap(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t&) override {
    return false;
  }

  Bytes bytes;
  std::size_t there;
  std::size_t reads = 0;
  std::size_t writes = 0;

 private:
  bool is_there(std::uint64_t address, std::size_t size) const {
    return address - kBegin + size <= there;
  }
  bool put(std::uint64_t address, ByteView from) {
    if (!is_there(address, from.size())) return false;
    std::ranges::copy(from, bytes.begin() + static_cast<std::ptrdiff_t>(address - kBegin));
    return true;
  }

  ForeignMemory foreign_;
};

struct FarPair : Pair {
  std::shared_ptr<FarMemory> near, far;
  MrInfo near_mr, far_mr;
  std::uint32_t qa, qb;

  explicit FarPair(std::size_t size, QpType type = QpType::RC, std::uint64_t run_seed = 7)
      : Pair(run_seed),
        near(std::make_shared<FarMemory>(size)),
        far(std::make_shared<FarMemory>(size)),
        near_mr(reg(a, near)),
        far_mr(reg(b, far)),
        qa(a.qp(type)),
        qb(b.qp(type)) {
    in_trains = true;
    CHECK(connect(true, qa, type, qb, 0xfffffa, 5).ok());
    CHECK(connect(false, qb, type, qa, 5, 0xfffffa).ok());
    std::ranges::generate(near->bytes, [this] { return static_cast<std::uint8_t>(random.next()); });
    std::ranges::generate(far->bytes, [this] { return static_cast<std::uint8_t>(random.next()); });
  }

  static MrInfo reg(Host& host, std::shared_ptr<FarMemory> memory) {
    const std::size_t size = memory->bytes.size();
    return host.adapter->reg_region({host.pd, kBegin, size, kBegin, 0xf, nullptr, memory}).value;
  }
  SendWr work(WrOpcode opcode, std::size_t offset, std::size_t size) const {
    SendWr wr;
    wr.opcode = opcode;
    wr.send_flags = kSendSignaled;
    wr.remote_address = kBegin + offset;
    wr.rkey = far_mr.rkey;
    wr.sges = {{kBegin + offset, static_cast<std::uint32_t>(size), near_mr.lkey}};
    return wr;
  }
  WcStatus run_one(const SendWr& wr) {
    CHECK(send(true, qa, wr).ok());
    run();
    const std::vector<Completion> out = a.poll();
    CHECK_EQ(out.size(), std::size_t{1});
    return out[0].status;
  }
};

TEST("trains of another process's memory: a call for all packets, and every byte right") {
  constexpr std::size_t kSize = 12 * kMtu + 100;
  FarPair pair(2 * kSize);
  const Bytes wanted(pair.near->bytes.begin(), pair.near->bytes.begin() + kSize);
  CHECK_EQ(pair.run_one(pair.work(WrOpcode::RDMA_WRITE, 0, kSize)), WcStatus::SUCCESS);
  CHECK(std::equal(wanted.begin(), wanted.end(), pair.far->bytes.begin()));
  CHECK_EQ(pair.near->reads, std::size_t{1});
  CHECK_EQ(pair.far->writes, std::size_t{1});
  // And back, by a READ into the other half.
  SendWr read = pair.work(WrOpcode::RDMA_READ, 0, kSize);
  read.sges[0].address = kBegin + kSize;
  CHECK_EQ(pair.run_one(read), WcStatus::SUCCESS);
  CHECK(std::equal(wanted.begin(), wanted.end(), pair.near->bytes.begin() + kSize));
  CHECK_EQ(pair.far->reads, std::size_t{1});
  CHECK_EQ(pair.near->writes, std::size_t{1});
}

TEST("trains of another process's memory: what is not the packet's own is not its concern") {
  // The region ends in memory that is gone, behind the message; and in the message's last packet.
  FarPair pair(8 * kMtu);
  pair.near->there = 4 * kMtu;
  CHECK_EQ(pair.run_one(pair.work(WrOpcode::RDMA_WRITE, 0, 4 * kMtu)), WcStatus::SUCCESS);
  CHECK(std::equal(pair.near->bytes.begin(), pair.near->bytes.begin() + 4 * kMtu,
                   pair.far->bytes.begin()));
  const std::uint64_t before = pair.packets;
  CHECK_EQ(pair.run_one(pair.work(WrOpcode::RDMA_WRITE, 0, 5 * kMtu)), WcStatus::LOC_PROT_ERR);
  // Those before it have left, as they do one by one.
  CHECK(pair.packets - before >= 4);
}

TEST("trains of another process's memory: a WRITE is refused wherever its memory has gone") {
  for (std::size_t lost = 0; lost < 6; ++lost) {
    FarPair pair(6 * kMtu);
    pair.far->there = lost * kMtu + 1;
    CHECK_EQ(pair.run_one(pair.work(WrOpcode::RDMA_WRITE, 0, 6 * kMtu)), WcStatus::REM_ACCESS_ERR);
    pair.near->there = pair.far->there;
    pair.far->there = 6 * kMtu;
  }
}

TEST("trains of another process's memory: a READ and a SEND fail wherever memory has gone") {
  for (std::size_t lost = 0; lost < 6; ++lost) {
    FarPair reading(6 * kMtu);
    reading.near->there = lost * kMtu + 1;
    CHECK_EQ(reading.run_one(reading.work(WrOpcode::RDMA_READ, 0, 6 * kMtu)),
             WcStatus::LOC_PROT_ERR);
    FarPair sending(6 * kMtu);
    sending.far->there = lost * kMtu + 1;
    RecvWr receive;
    receive.sges = {{kBegin, 6 * kMtu, sending.far_mr.lkey}};
    CHECK(sending.recv(false, sending.qb, receive).ok());
    CHECK_EQ(sending.run_one(sending.work(WrOpcode::SEND, 0, 6 * kMtu)), WcStatus::REM_OP_ERR);
    const std::vector<Completion> out = sending.b.poll();
    CHECK_EQ(out.size(), std::size_t{1});
    CHECK_EQ(out[0].status, WcStatus::LOC_PROT_ERR);
  }
}

TEST("trains of another process's memory: what comes in two batches fails in the second") {
  FarPair pair(6 * kMtu);
  pair.far->there = 2 * kMtu;
  std::uint64_t sent = 0;
  // The first three packets arrive alone, and their memory is found gone when they have.
  pair.filter = [&](bool from_a, const Packet&) { return !from_a || sent++ < 3; };
  CHECK(pair.send(true, pair.qa, pair.work(WrOpcode::RDMA_WRITE, 0, 6 * kMtu)).ok());
  CHECK(pair.step());
  pair.filter = nullptr;
  pair.run();
  const std::vector<Completion> out = pair.a.poll();
  CHECK_EQ(out.size(), std::size_t{1});
  CHECK_EQ(out[0].status, WcStatus::REM_ACCESS_ERR);
}

TEST("trains of another process's memory: a message posted later has what is there later") {
  // UC: the first message is complete when it has left, and its memory is the user's again.
  constexpr std::size_t kSize = 3 * kMtu;
  FarPair pair(2 * kSize, QpType::UC);
  std::array<std::uint8_t, kMaxDatagramBytes> buffer;
  OutgoingPacket out;
  const auto leave = [&](std::size_t offset, std::uint8_t value) {
    std::fill_n(pair.near->bytes.begin(), kSize, value);
    SendWr wr = pair.work(WrOpcode::RDMA_WRITE, 0, kSize);
    wr.remote_address = kBegin + offset;
    CHECK(pair.send(true, pair.qa, wr).ok());
    for (int i = 0; i < 3; ++i) {
      CHECK(pair.a.adapter->next_packet(buffer, out, pair.now_ns));
      pair.b.adapter->receive(out.route, out.datagram, pair.now_ns);
      pair.a.adapter->keep_turn();
    }
  };
  leave(0, 1);
  leave(kSize, 2);
  CHECK(std::all_of(pair.far->bytes.begin(), pair.far->bytes.begin() + kSize,
                    [](auto byte) { return byte == 1; }));
  CHECK(std::all_of(pair.far->bytes.begin() + kSize, pair.far->bytes.end(),
                    [](auto byte) { return byte == 2; }));
  CHECK_EQ(pair.near->reads, std::size_t{2});
}

TEST("trains of another process's memory: a SEND lands in all entries of its receive") {
  FarPair pair(6 * kMtu);
  RecvWr receive;
  receive.sges = {{kBegin + 4 * kMtu, 2 * kMtu, pair.far_mr.lkey},
                  {kBegin, 4 * kMtu, pair.far_mr.lkey}};
  CHECK(pair.recv(false, pair.qb, receive).ok());
  CHECK_EQ(pair.run_one(pair.work(WrOpcode::SEND, 0, 6 * kMtu)), WcStatus::SUCCESS);
  const Bytes& from = pair.near->bytes;
  CHECK(std::equal(from.begin(), from.begin() + 2 * kMtu, pair.far->bytes.begin() + 4 * kMtu));
  CHECK(std::equal(from.begin() + 2 * kMtu, from.end(), pair.far->bytes.begin()));
  CHECK_EQ(pair.far->writes, std::size_t{2});
}

TEST("trains of another process's memory: what a message has lost is not the next one's") {
  FarPair pair(6 * kMtu, QpType::UC);
  pair.far->there = 4 * kMtu;
  CHECK_EQ(pair.run_one(pair.work(WrOpcode::RDMA_WRITE, 2 * kMtu, 4 * kMtu)), WcStatus::SUCCESS);
  CHECK_EQ(pair.run_one(pair.work(WrOpcode::RDMA_WRITE, 0, 2 * kMtu)), WcStatus::SUCCESS);
  CHECK(std::equal(pair.near->bytes.begin(), pair.near->bytes.begin() + 2 * kMtu,
                   pair.far->bytes.begin()));
}

TEST("trains of another process's memory: a READ behind an atomic sees what that has done") {
  FarPair pair(8 * kMtu);
  std::fill(pair.far->bytes.begin(), pair.far->bytes.end(), std::uint8_t{0});
  SendWr read = pair.work(WrOpcode::RDMA_READ, 0, 2 * kMtu);
  SendWr again = read;
  again.sges[0].address = kBegin + 4 * kMtu;
  SendWr add = pair.work(WrOpcode::ATOMIC_FETCH_AND_ADD, 0, 8);
  add.remote_address = kBegin + kMtu;
  add.sges[0].address = kBegin + 7 * kMtu;
  add.compare_add = 0x55;
  for (const SendWr& wr : {read, add, again}) {
    CHECK(pair.send(true, pair.qa, wr).ok());
  }
  pair.run();
  CHECK_EQ(pair.a.poll().size(), std::size_t{3});
  CHECK_EQ(pair.near->bytes[kMtu], std::uint8_t{0});
  CHECK_EQ(pair.near->bytes[5 * kMtu], std::uint8_t{0x55});
}

TEST("trains of another process's memory: a wire of all faults, and every byte right") {
  for (std::uint64_t run = 0; run < 60; ++run) {
    FarPair pair(64 * kMtu, QpType::RC, seed() + run);
    pair.faults = {5, 5, 10, 5};
    for (int i = 0; i < 20; ++i) {
      const std::size_t offset = pair.random.below(32 * kMtu);
      const std::size_t size = 1 + pair.random.below(32 * kMtu);
      const bool reads = pair.random.below(2) == 0;
      const std::size_t writes_before = pair.near->writes + pair.far->writes;
      Bytes& from = reads ? pair.far->bytes : pair.near->bytes;
      Bytes& to = reads ? pair.near->bytes : pair.far->bytes;
      Bytes wanted = to;
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(offset), size,
                  wanted.begin() + static_cast<std::ptrdiff_t>(offset));
      const WrOpcode opcode = reads ? WrOpcode::RDMA_READ : WrOpcode::RDMA_WRITE;
      const WcStatus status = pair.run_one(pair.work(opcode, offset, size));
      if (status == WcStatus::RETRY_EXC_ERR) break;
      CHECK_EQ(status, WcStatus::SUCCESS);
      CHECK(to == wanted);
      CHECK(pair.near->writes + pair.far->writes > writes_before);
    }
  }
}

}  // namespace
}  // namespace softhca::testing
