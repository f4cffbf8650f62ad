// A neighbour that says what it likes, in records and messages that are right in all but one thing:
// it can hurt itself, and nobody else.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "neighbour/shared_ring.hpp"
#include "tests/neighbour_guest.hpp"
#include "tests/neighbour_sides.hpp"
#include "tests/rounds.hpp"
#include "vocabulary/random.hpp"
#include "wire/packet.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

constexpr std::uint32_t kPeerQpn = 0x1234;
constexpr std::uint32_t kMtuBytes = 2048;  // Of the connections of sides.

// What a peer knows of a queue pair anyway, and what it has to guess.
struct Known {
  std::atomic<std::uint32_t> qpn;
  std::atomic<std::uint32_t> expected_psn;
  std::atomic<std::uint32_t> sent_psn;
  std::atomic<std::uint32_t> turns;  // That the victim has had.
  std::uint32_t rkey;
  std::uint64_t address;
};

class Shared {
 public:
  Shared()
      : at_(mmap(nullptr, sizeof(Known), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                 0)) {
    CHECK(at_ != MAP_FAILED);
    new (at_) Known{};
  }
  ~Shared() { munmap(at_, sizeof(Known)); }
  Known& operator*() { return *static_cast<Known*>(at_); }

 private:
  void* at_;
};

// --- the hostile one, in a process of its own

struct [[gnu::packed]] Piece {
  std::uint64_t address;
  std::uint64_t buffer;
  std::uint32_t length;
};

class Hostile {
 public:
  Hostile(const Gid& own, const Gid& host, Known& known, std::uint64_t seed)
      : random_(seed), known_(known), guest_(own) {
    std::vector<FileDescriptor> fds = guest_.meet(host);
    if (fds.size() == 1) bell_ = std::move(fds[0]);
    guest_.agree();
  }

  // False: the connection has ended.
  bool act() {
    // Who is never looked at hurts nobody.
    if (++acts_ % kActsInATurn == 0) {
      const std::uint32_t turn = known_.turns.load();
      while (known_.turns.load() == turn) sched_yield();
    }
    if (random_.below(4) == 0) psn_ = known_.expected_psn.load();
    switch (random_.below(16)) {
      case 0:
        say_something();
        break;
      case 1:
      case 2:
      case 3:
        read_something();
        break;
      case 4:
        if (random_.below(200) == 0) scribble();
        break;
      case 5:
        if (bell_.is_open()) eventfd_write(bell_.get(), 1);
        break;
      default:
        write_record();
        break;
    }
    char byte = 0;
    return recv(guest_.talk.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
  }

 private:
  RingShared& to_victim() { return guest_.segment.layout().rings[0]; }
  RingShared& from_victim() { return guest_.segment.layout().rings[1]; }

  Packet make_packet() {
    static constexpr Operation kUsual[] = {
        Operation::SEND_ONLY,          Operation::RDMA_WRITE_ONLY,
        Operation::RDMA_READ_REQUEST,  Operation::RDMA_WRITE_ONLY_WITH_IMMEDIATE,
        Operation::FETCH_ADD,          Operation::ACKNOWLEDGE,
        Operation::ATOMIC_ACKNOWLEDGE, Operation::RDMA_READ_RESPONSE_ONLY};
    const Operation operation =
        random_.below(4) != 0 ? kUsual[random_.below(8)] : Operation(random_.below(0x18));
    Packet packet;
    packet.bth.opcode = random_.below(100) == 0 ? static_cast<std::uint8_t>(random_.below(256))
                                                : make_opcode(OpcodeTransport::RC, operation);
    packet.info = &opcode_info(packet.bth.opcode);
    packet.bth.destination_qpn = known_.qpn.load();
    const bool answers = packet.info->has(kResponse);
    packet.bth.psn = answers ? known_.sent_psn.load() - 1 : psn_;
    if (random_.below(8) == 0) packet.bth.psn += static_cast<std::uint32_t>(random_.below(5)) - 2;
    packet.bth.psn &= 0xffffff;
    packet.bth.ack_request = random_.below(2) == 0;
    packet.reth = {
        known_.address + (random_.below(4) == 0 ? random_.below(kBytes) : 0),
        random_.below(50) == 0 ? static_cast<std::uint32_t>(random_.next()) : known_.rkey,
        static_cast<std::uint32_t>(random_.below(kBytes / 2))};
    packet.atomic.virtual_address = packet.reth.virtual_address & ~std::uint64_t{7};
    packet.atomic.rkey = packet.reth.rkey;
    packet.aeth.syndrome =
        static_cast<std::uint8_t>(random_.below(8) == 0 ? random_.next() : 0x1fu);
    return packet;
  }

  Piece make_piece() {
    Piece piece{
        reinterpret_cast<std::uint64_t>(bytes_.data()) + random_.below(1000), 0,
        static_cast<std::uint32_t>(random_.below(4) == 0 ? random_.below(1u << 21) : kMtuBytes)};
    switch (random_.below(6)) {
      case 0:
        piece.buffer = 1 + random_.below(8);
        piece.address = random_.below(8192);
        break;
      case 1:
        piece.buffer = (std::uint64_t{1} << 63) | (1 + random_.below(8));
        break;
      case 2:
        piece.address = random_.next();
        break;
      default:
        break;
    }
    return piece;
  }

  void write_record() {
    Packet packet = make_packet();
    std::uint32_t psns = 1;
    std::vector<std::uint8_t> rest;
    std::uint32_t pieces = 0;
    if (!packet.info->has(kHasPayload) && random_.below(16) != 0) {
      // As it should be.
    } else if (random_.below(2) == 0) {
      pieces = static_cast<std::uint32_t>(1 + random_.below(random_.below(16) == 0 ? 260 : 3));
      psns = static_cast<std::uint32_t>(random_.below(16) == 0 ? random_.below(5000) : pieces);
      rest.resize(pieces * sizeof(Piece));
      std::uint32_t total = 0;
      for (std::uint32_t i = 0; i < pieces; ++i) {
        const Piece piece = make_piece();
        total += piece.length;
        std::memcpy(rest.data() + i * sizeof piece, &piece, sizeof piece);
      }
      if (random_.below(8) != 0) packet.reth.length = total;
    } else {
      rest.resize(random_.below(random_.below(16) == 0 ? 33'000 : kMtuBytes));
      if (random_.below(8) != 0) packet.reth.length = static_cast<std::uint32_t>(rest.size());
    }
    std::array<std::uint8_t, 64> headers{};
    auto header_bytes = static_cast<std::uint32_t>(encode_headers(packet, headers));
    if (random_.below(50) == 0) header_bytes = static_cast<std::uint32_t>(random_.below(65));
    RingPlace behind;
    RingRecord record =
        writer_.begin(header_bytes, static_cast<std::uint32_t>(rest.size()), behind);
    if (record.slot == nullptr) return;
    std::copy_n(headers.begin(), header_bytes, record.headers);
    std::ranges::copy(rest, record.rest);
    record.psns = psns;
    record.piece_count =
        random_.below(50) == 0 ? static_cast<std::uint32_t>(random_.next()) : pieces;
    writer_.publish(record, behind);
    if (!packet.info->has(kResponse)) psn_ = (packet.bth.psn + psns) & 0xffffff;
    change(record, rest.size());
    if (writer_.take_sleeper(false) && bell_.is_open()) eventfd_write(bell_.get(), 1);
  }

  // While it may be read.
  void change(const RingRecord& record, std::size_t rest_bytes) {
    const auto any = [this] { return static_cast<std::uint32_t>(random_.next()); };
    switch (random_.below(200)) {
      case 0:
        record.slot->psns = any();
        break;
      case 1:
        record.slot->bytes = any() % 40'000;
        break;
      case 2:
        record.slot->word.fetch_xor(any() % 8);
        break;
      case 3:
      case 4:
        std::ranges::fill(std::span(record.rest, rest_bytes), std::uint8_t{0xff});
        break;
      default:
        break;
    }
  }

  // What was lent is claimed, called unreadable or left alone; now and then a wrong place is told.
  void read_something() {
    RingPlace behind;
    const RingRecord record = reader_.peek(reader_.place(), behind);
    if (record.slot == nullptr) return;
    if (record.piece_count != 0 && random_.below(2) == 0) {
      record.slot->word.fetch_xor(static_cast<std::uint32_t>(random_.below(4)));
    }
    if (random_.below(4) == 0) reader_.call_unreadable(record);
    if (random_.below(50) == 0) from_victim().unreadable.fetch_add(3);
    if (reader_.consume(behind) || random_.below(2) == 0) static_cast<void>(reader_.tell());
    if (random_.below(2000) == 0) from_victim().consumed_slots.store(random_.next());
    if (random_.below(2000) == 0) from_victim().consumed_bytes.store(random_.next());
    from_victim().reader_asleep.store(static_cast<std::uint32_t>(random_.below(2)));
    from_victim().reader_fetches.store(static_cast<std::uint32_t>(random_.below(2)));
  }

  void scribble() {
    RingShared& ring = random_.below(2) == 0 ? to_victim() : from_victim();
    auto* const bytes = reinterpret_cast<volatile std::uint8_t*>(&ring);
    for (int i = 0; i < 16; ++i) {
      bytes[random_.below(sizeof ring)] = static_cast<std::uint8_t>(random_.next());
    }
  }

  void say_something() {
    static constexpr MessageKind kKinds[] = {
        MessageKind::BUFFER, MessageKind::BUFFER,        MessageKind::FORGET, MessageKind::MEMORY,
        MessageKind::MEMORY, MessageKind::FORGET_MEMORY, MessageKind::AGREED, MessageKind::HELLO};
    NeighbourMessage message =
        card(random_.below(50) == 0 ? MessageKind(random_.next()) : kKinds[random_.below(8)],
             guest_.own);
    message.buffer = 1 + random_.below(8);
    message.buffer_bytes = random_.below(8) == 0 ? random_.next() : 8192;
    message.process = random_.below(2) == 0 ? static_cast<std::uint64_t>(getpid()) : random_.next();
    if (last_.is_open() && random_.below(4) == 0) static_cast<void>(ftruncate(last_.get(), 0));
    FileDescriptor fd(random_.below(2) == 0 ? memfd_create("buffer", MFD_CLOEXEC)
                                            : open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    static_cast<void>(ftruncate(fd.get(), 8192));
    std::vector<int> fds(random_.below(8) == 0 ? random_.below(3) : 1, fd.get());
    static_cast<void>(send_message(guest_.talk.get(), message, fds));
    last_ = std::move(fd);
  }

  static constexpr std::uint32_t kActsInATurn = 8;

  Random random_;
  Known& known_;
  Guest guest_;
  std::uint32_t acts_ = 0;
  std::uint32_t psn_ = 0;
  FileDescriptor bell_;
  FileDescriptor last_;
  RingWriter writer_{to_victim()};
  RingReader reader_{from_victim()};
  std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(1u << 20);
};

pid_t let_loose(const Gid& own, const Gid& host, Known& known, std::uint64_t seed,
                std::uint64_t acts) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  alarm(300);
  Random random(seed);
  try {
    while (acts > 0) {
      Hostile hostile(own, host, known, random.next());
      do --acts;
      while (hostile.act() && acts > 0);
    }
  } catch (...) {  // A check of its own.
    _exit(1);
  }
  _exit(0);
}

// --- the victim

class Victim {
 public:
  explicit Victim(Known& known) : known_(known) {
    fenced_.resize(3 * std::size_t{kBytes}, kFence);
    known.address = reinterpret_cast<std::uint64_t>(fenced_.data()) + kBytes;
    const auto mr = side.adapter.reg_mr(side.pd, known.address, kBytes, known.address, 0xf);
    CHECK(mr.ok());
    known.rkey = mr.value.rkey;
    known.qpn.store(side.qpn);
  }

  void connect(const Gid& peer) {
    QpAttr attr;
    attr.qp_state = QpState::RESET;
    side.modify(attr, kQpState);
    side.connect(peer, kPeerQpn);
  }

  void post_something(Random& random, std::uint64_t now_ns) {
    const Sge sge{known_.address, static_cast<std::uint32_t>(1 + random.below(kBytes)),
                  known_.rkey};
    std::size_t posted = 0;
    if (random.below(2) == 0) {
      RecvWr recv;
      recv.sges = {sge};
      const RecvWr* const list[] = {&recv};
      static_cast<void>(side.adapter.post_recv(side.qpn, list, posted, now_ns));
      return;
    }
    static constexpr WrOpcode kOpcodes[] = {WrOpcode::SEND, WrOpcode::RDMA_WRITE,
                                            WrOpcode::RDMA_READ, WrOpcode::ATOMIC_FETCH_AND_ADD};
    SendWr send;
    send.opcode = kOpcodes[random.below(4)];
    send.send_flags = kSendSignaled;
    send.sges = {sge};
    const SendWr* const list[] = {&send};
    static_cast<void>(side.adapter.post_send(side.qpn, list, posted, now_ns));
  }

  void live(Random& random, const Gid& peer, std::uint64_t now_ns) {
    side.neighbours->serve();
    const std::lock_guard lock(side.mutex);
    static_cast<void>(side.neighbours->fetch(now_ns));
    QpInit init;
    const QpAttr attr = side.adapter.query_qp(side.qpn, init).value;
    const bool knows = side.neighbours->path_to(side.gid(), peer) != nullptr;
    if (attr.qp_state != QpState::RTS || (knows && !knew_) || random.below(200) == 0) connect(peer);
    knew_ = knows;
    post_something(random, now_ns);
    while (side.adapter.exchange(now_ns)) continue;
    side.adapter.advance(now_ns);
    std::array<Completion, 16> out;
    while (side.adapter.poll_cq(side.cq, out).value != 0) continue;
    AsyncEvent event;
    while (side.adapter.next_event(event)) continue;
    const QpAttr after = side.adapter.query_qp(side.qpn, init).value;
    known_.expected_psn.store(after.rq_psn);
    known_.sent_psn.store(after.sq_psn);
    ++known_.turns;
  }

  bool is_fenced() const {
    const auto whole = std::span(fenced_);
    const auto is_fence = [](std::uint8_t byte) { return byte == kFence; };
    return std::ranges::all_of(whole.first(kBytes), is_fence) &&
           std::ranges::all_of(whole.last(kBytes), is_fence);
  }

  Side side{1};

 private:
  static constexpr std::uint8_t kFence = 0x5a;
  Known& known_;
  bool knew_ = false;  // The way to the hostile one.
  std::vector<std::uint8_t> fenced_;
};

TEST("neighbour: one that says what it likes hurts nobody else") {
  Random random(seed());
  const std::uint64_t all = rounds(2);
  for (std::uint64_t round = 0; round < all; ++round) {
    Shared known;
    Victim victim(*known);
    const Gid peer = config_of(2).gids[0];
    const pid_t hostile = let_loose(peer, victim.side.gid(), *known, random.next(), 2000);
    int status = 0;
    std::uint64_t now_ns = kNow;
    while (waitpid(hostile, &status, WNOHANG) == 0) victim.live(random, peer, now_ns += 10'000);
    CHECK_EQ(status, 0);
    CHECK(victim.is_fenced());
    victim.side.go();
  }
}

}  // namespace
}  // namespace softhca::testing
