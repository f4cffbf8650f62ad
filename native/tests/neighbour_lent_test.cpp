// What becomes of a payload that is lent to a neighbour while other things happen.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tests/neighbour_segments.hpp"
#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

constexpr std::uint64_t kLater = kNow + 200'000'000;  // Behind the retry timer.

std::vector<Completion> poll(Side& side) {
  std::vector<Completion> came(8);
  came.resize(side.adapter.poll_cq(side.cq, came).value);
  return came;
}

QpState state_of(const Side& side) {
  QpInit init;
  return side.adapter.query_qp(side.qpn, init).value.qp_state;
}

// Though an answer waits to be read.
void time_out(Side& side) {
  while (side.adapter.counters().local_ack_timeout_err == 0) {
    side.adapter.advance(side.adapter.next_deadline_ns());
  }
}

// A retry asks again for what is already on its way, and nobody waits for the second answer.
TEST("neighbour: who has the answer of a READ may let its peer take the region away") {
  Side reader(1);
  Side other(2);
  introduce(reader, other);
  std::ranges::fill(other.bytes, 42);
  post(reader, {work(WrOpcode::RDMA_READ, reader, other)});
  CHECK(other.neighbours->fetch(kNow));
  CHECK(!other.adapter.exchange(kNow));
  time_out(reader);
  CHECK(!reader.adapter.exchange(kLater));
  CHECK(other.neighbours->fetch(kLater));
  CHECK(reader.neighbours->fetch(kLater));
  const std::vector<Completion> came = poll(reader);
  CHECK_EQ(came.size(), 1u);
  CHECK(came[0].status == WcStatus::SUCCESS);
  CHECK_EQ(std::ranges::count(reader.bytes, 42), static_cast<std::ptrdiff_t>(kBytes));
  CHECK(!other.adapter.exchange(kLater));
  CHECK(other.adapter.dereg_mr(other.mr.handle).ok());
  static_cast<void>(other.neighbours->fetch(kLater));
  CHECK(state_of(other) == QpState::RTS);
  reader.go();
  other.go();
}

// A packet of a path stands for many on the network.
TEST("neighbour: what is sent again is counted by the packets that it stands for") {
  Side sender(1);
  Side other(2);
  introduce(sender, other);
  post(sender, {work(WrOpcode::RDMA_WRITE, sender, other)});
  const auto counted = [&] { return sender.adapter.qp_counters(sender.qpn).value; };
  const std::uint64_t once = counted().sent_pkts;
  sender.adapter.advance(kLater);
  CHECK(!sender.adapter.exchange(kLater));
  CHECK(counted().sent_pkts > once);
  CHECK_EQ(counted().sent_pkts - counted().retransmitted_pkts, once);
  sender.go();
  other.go();
}

// What its last connection could not answer is no concern of the next one.
TEST("neighbour: a region that goes does not end a connection that never lent it") {
  Side reader(1);
  Side other(2);
  introduce(reader, other);
  post(reader, {work(WrOpcode::RDMA_READ, reader, other)});
  CHECK(other.neighbours->fetch(kNow));
  CHECK(!other.adapter.exchange(kNow));
  CHECK(other.adapter.dereg_mr(other.mr.handle).ok());
  QpAttr attr;
  attr.qp_state = QpState::RESET;
  other.modify(attr, kQpState);
  other.connect(reader);
  static_cast<void>(other.neighbours->fetch(kNow));
  CHECK(state_of(other) == QpState::RTS);
  reader.go();
  other.go();
}

// Both work off what has come, for as long as an answer may take to come to somebody who asks.
void carry(Side& one, Side& other) {
  for (int round = 0; round < 4; ++round) {
    for (Side* side : {&other, &one}) {
      static_cast<void>(side->neighbours->fetch(kNow));
      CHECK(!side->adapter.exchange(kNow));
    }
  }
}

TEST("neighbour: a request that is refused does not cost the answer of a READ before it") {
  Side reader(1);
  Side other(2);
  introduce(reader, other);
  std::ranges::fill(other.bytes, 42);
  post(reader, {work(WrOpcode::RDMA_READ, reader, other)});
  CHECK(other.neighbours->fetch(kNow));
  CHECK(!other.adapter.exchange(kNow));
  SendWr bad = work(WrOpcode::RDMA_WRITE, reader, other);
  bad.rkey ^= 1;
  post(reader, {bad});
  carry(reader, other);
  const std::vector<Completion> came = poll(reader);
  CHECK_EQ(came.size(), 2u);
  CHECK(came[0].status == WcStatus::SUCCESS);
  CHECK(came[1].status == WcStatus::REM_ACCESS_ERR);
  CHECK_EQ(std::ranges::count(reader.bytes, 42), static_cast<std::ptrdiff_t>(kBytes));
  reader.go();
  other.go();
}

// Gives the region of a side other rights, while an answer from it is on its way; what the READ
// comes to.
Completion read_across_new_rights(std::uint32_t access) {
  Side reader(1);
  Side other(2);
  introduce(reader, other);
  std::ranges::fill(other.bytes, 42);
  post(reader, {work(WrOpcode::RDMA_READ, reader, other)});
  CHECK(other.neighbours->fetch(kNow));
  CHECK(!other.adapter.exchange(kNow));
  RegionRequest wanted;
  wanted.access = access;
  CHECK(other.adapter.rereg_mr(other.mr.handle, kReregAccess, wanted).ok());
  carry(reader, other);
  const std::vector<Completion> came = poll(reader);
  CHECK_EQ(came.size(), 1u);
  const bool is_there = std::ranges::count(reader.bytes, 42) == static_cast<std::ptrdiff_t>(kBytes);
  CHECK_EQ(is_there, came[0].status == WcStatus::SUCCESS);
  reader.go();
  other.go();
  return came[0];
}

// The key is what it was, and on the network nobody would notice.
TEST("neighbour: a region that gets other rights still gives the answer that is on its way") {
  CHECK(read_across_new_rights(kAccessRemoteRead).status == WcStatus::SUCCESS);
}

TEST("neighbour: a region that loses the right to be read refuses the answer on its way") {
  CHECK(read_across_new_rights(kAccessLocalWrite).status == WcStatus::REM_ACCESS_ERR);
}

// Its program may sleep, and who wakes it with it.
TEST("neighbour: what a region that goes takes back is told by whoever is called") {
  Side reader(1);
  Side other(2);
  introduce(reader, other);
  post(reader, {work(WrOpcode::RDMA_READ, reader, other)});
  CHECK(other.neighbours->fetch(kNow));
  CHECK(!other.adapter.exchange(kNow));
  std::vector<std::uint8_t> buffer(kMaxDatagramBytes);
  OutgoingPacket packet;
  CHECK(!other.adapter.next_packet(buffer, packet, kNow));
  other.adapter.told();
  CHECK(!other.adapter.wants_driver());
  CHECK(other.adapter.dereg_mr(other.mr.handle).ok());
  CHECK(other.adapter.wants_driver());
  CHECK(other.neighbours->fetch(kNow));
  CHECK(state_of(other) == QpState::ERR);
  reader.go();
  other.go();
}

// The READ behind it is refused before anybody has heard that the first one was never fetched.
TEST("neighbour: of two READs of a region that goes, the peer hears that the first is refused") {
  Side reader(1);
  Side other(2);
  introduce(reader, other);
  post(reader, {work(WrOpcode::RDMA_READ, reader, other)});
  CHECK(other.neighbours->fetch(kNow));
  CHECK(!other.adapter.exchange(kNow));
  CHECK(other.adapter.dereg_mr(other.mr.handle).ok());
  post(reader, {work(WrOpcode::RDMA_READ, reader, other)});
  carry(reader, other);
  const std::vector<Completion> came = poll(reader);
  CHECK_EQ(came.size(), 2u);
  CHECK(came[0].status == WcStatus::REM_ACCESS_ERR);
  CHECK(came[1].status == WcStatus::WR_FLUSH_ERR);
  CHECK(state_of(other) == QpState::ERR);
  reader.go();
  other.go();
}

TEST("neighbour: nobody reads for a queue pair that its owner takes to ERR") {
  Side reader(1);
  Side other(2);
  introduce(reader, other);
  std::ranges::fill(other.bytes, 42);
  post(reader, {work(WrOpcode::RDMA_READ, reader, other)});
  CHECK(other.neighbours->fetch(kNow));
  CHECK(!other.adapter.exchange(kNow));
  QpAttr attr;
  attr.qp_state = QpState::ERR;
  other.modify(attr, kQpState);
  std::ranges::fill(other.bytes, 1);
  carry(reader, other);
  CHECK_EQ(std::ranges::count(reader.bytes, 0), static_cast<std::ptrdiff_t>(kBytes));
  reader.go();
  other.go();
}

// The path that it took is not the one that its queue pair has when it fails.
TEST("neighbour: a payload is its sender's again when it is flushed on another path") {
  Side sender(1);
  Side other(2);
  introduce(sender, other);
  std::ranges::fill(sender.bytes, 42);
  post(sender, {work(WrOpcode::RDMA_WRITE, sender, other)});
  QpAttr attr;
  attr.qp_state = QpState::SQD;
  sender.modify(attr, kQpState);
  attr.ah_attr.dgid = own_address(9);
  sender.modify(attr, kQpState | kQpAv);
  attr.qp_state = QpState::ERR;
  sender.modify(attr, kQpState);
  CHECK_EQ(poll(sender).size(), 1u);
  std::ranges::fill(sender.bytes, 1);
  CHECK(other.neighbours->fetch(kNow));
  CHECK_EQ(std::ranges::count(other.bytes, 1), 0);
  sender.go();
  other.go();
}

TEST("neighbour: an atomic does not change what a READ before it sees") {
  Side sender(1);
  Side other(2);
  introduce(sender, other);
  std::ranges::fill(other.bytes, 42);
  std::array<std::uint8_t, 8> original{};
  const auto at = reinterpret_cast<std::uint64_t>(original.data());
  const MrInfo mr = sender.adapter.reg_mr(sender.pd, at, 8, at, kAccessLocalWrite).value;
  SendWr add = work(WrOpcode::ATOMIC_FETCH_AND_ADD, sender, other);
  add.sges = {{at, 8, mr.lkey}};
  add.compare_add = 1;
  post(sender, {work(WrOpcode::RDMA_READ, sender, other), add});
  for (int round = 0; round < 3; ++round) {
    static_cast<void>(other.neighbours->fetch(kNow));
    CHECK(!other.adapter.exchange(kNow));
    static_cast<void>(sender.neighbours->fetch(kNow));
    CHECK(!sender.adapter.exchange(kNow));
  }
  CHECK_EQ(poll(sender).size(), 2u);
  CHECK_EQ(std::ranges::count(sender.bytes, 42), static_cast<std::ptrdiff_t>(kBytes));
  CHECK_EQ(std::ranges::count(original, 42), 8);
  CHECK_EQ(other.bytes[0], 43);
  sender.go();
  other.go();
}

// As a peer that was stopped in the middle, or wants to be waited for.
void claim_all(SegmentLayout& segment) {
  for (RingShared& ring : segment.rings) {
    for (SharedSlot& slot : ring.slots) {
      const std::uint32_t word = slot.word.load();
      const bool lent =
          (word & 0xff) == static_cast<std::uint32_t>(RecordState::READY) && slot.piece_count != 0;
      if (lent) slot.word.store(word + 1);
    }
  }
}

TEST("neighbour: one that claims what it was lent and keeps it is not waited for again") {
  Side lender(1);
  Side other(2);
  introduce(lender, other);
  post(lender,
       {work(WrOpcode::RDMA_WRITE, lender, other), work(WrOpcode::RDMA_WRITE, lender, other)});
  const Segments segments;
  CHECK(!segments.mapped.empty());
  claim_all(*reinterpret_cast<SegmentLayout*>(segments.mapped[0].data()));
  QpAttr attr;
  attr.qp_state = QpState::ERR;
  lender.modify(attr, kQpState);
  CHECK_EQ(poll(lender).size(), 2u);
  CHECK(lender.neighbours->path_to(lender.gid(), other.gid()) == nullptr);
  lender.neighbours->fetch(kNow);
  CHECK(!lender.neighbours->is_inhabited());
  lender.go();
  other.go();
}

// Its memory is somebody else's from then on, and its peer may look at the ring much later.
TEST("neighbour: what a device had lent is not fetched once it is closed") {
  Side lender(1);
  Side other(2);
  introduce(lender, other);
  post(lender, {work(WrOpcode::RDMA_WRITE, lender, other)});
  lender.go();
  std::ranges::fill(lender.bytes, 1);
  while (other.neighbours->is_inhabited()) other.neighbours->serve();
  CHECK_EQ(std::ranges::count(other.bytes, 1), 0);
  other.go();
}

// Another queue pair of each, connected.
std::uint32_t connect_another(Side& one, Side& other) {
  const std::uint32_t first = one.qpn;
  for (Side* side : {&one, &other}) {
    QpInit init;
    init.pd = side->pd;
    init.send_cq = init.recv_cq = side->cq;
    init.cap = {8, 8, 1, 1, 0};
    side->qpn = side->adapter.create_qp(init).value;
  }
  one.connect(other);
  other.connect(one);
  return first;
}

TEST("neighbour: one that is given up for one payload fetches no other one later") {
  Side lender(1);
  Side other(2);
  introduce(lender, other);
  post(lender, {work(WrOpcode::RDMA_WRITE, lender, other)});
  const Segments segments;
  CHECK(!segments.mapped.empty());
  auto& segment = *reinterpret_cast<SegmentLayout*>(segments.mapped[0].data());
  claim_all(segment);  // It stands still in the middle of this one.
  const std::uint32_t first = connect_another(lender, other);
  post(lender, {work(WrOpcode::RDMA_WRITE, lender, other)});
  QpAttr attr;
  attr.qp_state = QpState::ERR;
  const std::uint32_t second = std::exchange(lender.qpn, first);
  lender.modify(attr, kQpState);
  lender.neighbours->fetch(kNow);
  CHECK(!lender.neighbours->is_inhabited());
  lender.qpn = second;
  lender.modify(attr, kQpState);
  CHECK_EQ(poll(lender).size(), 2u);
  std::ranges::fill(lender.bytes, 1);
  // It goes on.
  const std::uint32_t lap = segment.rings[0].slots[0].word.load() & ~0xffu;
  segment.rings[0].slots[0].word.store(lap | static_cast<std::uint32_t>(RecordState::CANCELLED));
  while (other.neighbours->fetch(kNow)) continue;
  CHECK_EQ(std::ranges::count(other.bytes, 1), 0);
  lender.go();
  other.go();
}

}  // namespace
}  // namespace softhca::testing
