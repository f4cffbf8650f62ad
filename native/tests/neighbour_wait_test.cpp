// How long one that fetches what is to be taken back is waited for, by a clock that the test moves.
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "memory/address_space.hpp"
#include "neighbour/neighbour.hpp"
#include "tests/check.hpp"
#include "transport/local_packet.hpp"

namespace softhca {
namespace {

constexpr std::uint32_t kQpn = 17;
constexpr std::uint64_t kRecords = 16;
constexpr int kLooksPerRecord = 50;
constexpr std::uint64_t kStepNs = 10'000'000;

RingShared* ring = nullptr;
int asked = 0;

// The peer keeps each record for a while, as one on a busy machine, or one that is up to no good.
std::uint64_t clock_ns() {
  if (++asked % kLooksPerRecord == 0) ring->consumed_slots.fetch_add(1);
  return static_cast<std::uint64_t>(asked) * kStepNs;
}

Neighbour::Meeting meeting_with(std::unique_ptr<SharedSegment> segment) {
  Neighbour::Meeting meeting;
  meeting.segment = std::move(segment);
  meeting.made_here = true;
  meeting.pid = getpid();
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  meeting.socket.reset(ends[0]);
  ::close(ends[1]);
  meeting.bell.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  meeting.clock_ns = clock_ns;
  return meeting;
}

TEST("neighbour: a call waits for a peer that fetches for a second, however much it has lent") {
  auto segment = std::make_unique<SharedSegment>();
  CHECK_EQ(segment->create(), 0);
  ring = &segment->layout().rings[0];
  Neighbour neighbour(meeting_with(std::move(segment)));
  std::uint8_t bytes[64] = {};
  LocalPacket local;
  local.packet.bth.opcode = make_opcode(OpcodeTransport::RC, Operation::SEND_ONLY);
  local.packet.info = &opcode_info(local.packet.bth.opcode);
  local.qpn = kQpn;
  local.pieces = {{&process_space(), reinterpret_cast<std::uint64_t>(bytes), sizeof bytes}};
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    neighbour.send(local);
    ring->slots[i].word.fetch_add(1);  // It is claimed.
  }
  asked = 0;
  neighbour.recall(kQpn, LentPayloads::ALL);
  CHECK(neighbour.is_broken());
  const int whole_wait = static_cast<int>(1'000'000'000 / kStepNs);
  CHECK(asked >= whole_wait && asked <= whole_wait + 2);
}

}  // namespace
}  // namespace softhca
