#include "neighbour/neighbour.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "memory/guarded_access.hpp"
#include "memory/often_copied.hpp"
#include "neighbour/strangers_files.hpp"

namespace softhca {
namespace {

constexpr std::size_t kMaxPieces = 256;
constexpr std::uint32_t kMaxPackets = kLocalPacketBytes / 256;
// Looks at a peer that fetches what is to be taken back, until it is asked whether it still lives.
constexpr int kLooks = 1000;
// A peer that was stopped in the middle is not waited for: so long, once. Looks say nothing about
// time, for each so many of them the processor is given away.
constexpr std::uint64_t kMostWaitNs = 1'000'000'000;
// Payload bytes after which a call to fetch() comes to an end.
constexpr std::uint64_t kFetchBytes = 512 * 1024;
// More messages than a socket holds: what was said before a record is heard before it.
constexpr int kMostUnheard = 1024;
// Longer records have half gone by themselves when they are complete.
constexpr std::uint32_t kHastenedBytes = 1024;
constexpr std::uint32_t kMayRefer = kSend | kWrite | kReadResponse;

// What nobody has taken. False: there were files that no neighbour hands over.
bool close_all(std::vector<FileDescriptor>& fds) {
  bool known = true;
  for (FileDescriptor& fd : fds) known &= close_strangers_file(std::move(fd));
  return known;
}

}  // namespace

Neighbour::Neighbour(Meeting meeting)
    : met_(std::move(meeting)),
      writer_(met_.segment->layout().rings[met_.made_here ? 0 : 1]),
      reader_(met_.segment->layout().rings[met_.made_here ? 1 : 0]),
      own_process_(met_.pid == getpid()),
      agreed_(met_.made_here),
      own_memory_(process_space()),
      memory_(met_.pid),
      removals_seen_(shared_buffers().removals()) {
  from_peer_.source = met_.peer;
  from_peer_.destination = met_.own;
  reader_.shared().reader_fetches.store(met_.readable ? 1 : 0);
  reader_.shared().reader_orders.store(met_.is_ordered ? 1 : 0);
}

// Nobody here asks any more what the peer has fetched, which may look at the ring much later.
// Children of fork() have copies of the socket, and would keep from the peer that we have gone.
Neighbour::~Neighbour() {
  Wait wait;
  for (Lent& lent : lent_) static_cast<void>(take_back(lent, wait));
  close_strangers_socket(std::move(met_.socket));
}

// --- sending

bool Neighbour::has_room() {
  settle();
  if (writer_.has_room()) return true;
  writer_.look();
  settle();
  if (writer_.has_room()) return true;
  writer_.shared().writer_waits.store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  writer_.look();
  settle();
  // What goes into a broken ring is lost.
  waits_for_room_ = !writer_.has_room() && !writer_.is_broken();
  return !waits_for_room_;
}

bool Neighbour::can_fetch(std::span<const MemoryPiece> pieces) {
  if (pieces.size() > kMaxPieces) return false;
  const bool reads =
      writer_.shared().reader_fetches.load(std::memory_order_relaxed) != 0 || own_process_;
  forget_buffers();
  forget_memories();
  return std::ranges::all_of(pieces, [&](const MemoryPiece& piece) {
    if (const ForeignMemory* foreign = piece.space->foreign()) return announce(*foreign);
    if (!piece.space->is_direct()) return false;
    return reads || common_buffer(piece.address, piece.length) != nullptr;
  });
}

std::size_t Neighbour::send_short(std::span<const ShortPacket> packets) {
  settle();
  std::size_t sent = 0;
  for (; sent < packets.size() && writer_.has_room(); ++sent) {
    const ShortPacket& packet = packets[sent];
    RingPlace behind;
    const RingRecord record =
        writer_.begin(static_cast<std::uint32_t>(packet.header_bytes()),
                      static_cast<std::uint32_t>(packet.payload.size()), behind);
    if (record.slot == nullptr) break;
    encode_short(packet, record.headers);
    if (guarded_copy(record.rest, packet.payload.data(), packet.payload.size()) != 0) break;
    publish(record, behind);
  }
  if (sent > 0 && writer_.take_sleeper(met_.is_ordered)) wake();
  return sent;
}

bool Neighbour::send_acknowledge(const PlainAcknowledge& packet) {
  RingPlace behind;
  const RingRecord record = writer_.begin(PlainAcknowledge::kHeaderBytes, 0, behind);
  if (record.slot == nullptr) return false;
  encode_acknowledge(packet, record.headers);
  publish(record, behind);
  if (writer_.take_sleeper(met_.is_ordered)) wake();
  return true;
}

// A message in one piece, in memory of this process.
bool Neighbour::lend(const ShortPacket& packet, std::uint32_t qpn, std::uint32_t lkey) {
  const MemoryPiece piece{&own_memory_, reinterpret_cast<std::uint64_t>(packet.payload.data()),
                          packet.payload.size(), lkey};
  if (!has_room() || !can_fetch({&piece, 1})) return false;
  const PieceOnTheWay way = way_to(piece);
  RingPlace behind;
  RingRecord record =
      writer_.begin(static_cast<std::uint32_t>(packet.header_bytes()), sizeof way, behind);
  if (record.slot == nullptr) return false;
  record.psns = packet.psns;
  record.piece_count = 1;
  encode_short(packet, record.headers);
  std::memcpy(record.rest, &way, sizeof way);
  Lent lent;
  lent.what = {qpn, packet.psn, false};
  lent.key = lkey >> 8;
  publish_lent(record, behind, std::move(lent));
  if (writer_.take_sleeper(met_.is_ordered)) wake();
  return true;
}

void Neighbour::send(const LocalPacket& local) {
  const Packet& packet = local.packet;
  const std::size_t rest_bytes =
      local.pieces.empty() ? packet.payload.size() : local.pieces.size() * sizeof(PieceOnTheWay);
  RingPlace behind;
  RingRecord record =
      writer_.begin(packet.info->header_bytes, static_cast<std::uint32_t>(rest_bytes), behind);
  if (record.slot == nullptr) return;  // The peer is not what it should be.
  record.psns = packet.psns;
  record.piece_count = static_cast<std::uint32_t>(local.pieces.size());
  encode_headers(packet, {record.headers, record.header_bytes});
  if (local.pieces.empty()) {
    if (rest_bytes != 0) std::memcpy(record.rest, packet.payload.data(), rest_bytes);
    publish(record, behind);
  } else {
    Lent lent;
    lent.what = lent_payload_of(local.qpn, packet);
    for (const MemoryPiece& piece : local.pieces) {
      const PieceOnTheWay way = way_to(piece);
      std::memcpy(record.rest, &way, sizeof way);
      record.rest += sizeof way;
      const std::uint32_t key = piece.key >> 8;
      if (&piece == &local.pieces.front()) {
        lent.key = key;
      } else if (!lent.is_granted_by(key)) {
        lent.more_keys.push_back(key);
      }
    }
    publish_lent(record, behind, std::move(lent));
  }
  if (writer_.take_sleeper(met_.is_ordered)) wake();
}

[[gnu::always_inline]] inline void Neighbour::publish(const RingRecord& record, RingPlace behind) {
  if (heard_ && record.bytes > kInlineBytes && record.bytes <= kHastenedBytes) {
    heard_ = false;
    writer_.hasten(record);
  }
  writer_.publish(record, behind);
}

void Neighbour::publish_lent(const RingRecord& record, RingPlace behind, Lent lent) {
  lent.slot = record.slot;
  lent.ready = writer_.ready_word();
  writer_.publish(record, behind);
  lent.end = writer_.produced();
  lent_.push_back(std::move(lent));
}

// How the peer finds a piece that it can fetch.
PieceOnTheWay Neighbour::way_to(const MemoryPiece& piece) {
  PieceOnTheWay way{piece.address, 0, static_cast<std::uint32_t>(piece.length)};
  if (const ForeignMemory* foreign = piece.space->foreign()) {
    way.buffer = kForeign | foreign->number;
  } else if (const SharedBuffer* buffer = common_buffer(piece.address, piece.length)) {
    way.address = piece.address - buffer->address;
    way.buffer = buffer->number;
  } else if (!own_process_) {
    note_own_copy(piece.address, piece.length);
  }
  return way;
}

void Neighbour::wake() { eventfd_write(met_.bell.get(), 1); }

const SharedBuffer* Neighbour::common_buffer(std::uint64_t address, std::uint64_t length) {
  if (lent_buffer_.holds(address, length)) return &lent_buffer_;
  const SharedBuffer buffer = shared_buffers().find(address, length);
  if (buffer.number == 0 || !announce(buffer)) return nullptr;
  lent_buffer_ = buffer;
  return &lent_buffer_;
}

// The descriptor arrives before the record that needs it.
bool Neighbour::announce(const SharedBuffer& buffer) {
  const auto known = [&](const SharedBuffer& one) { return one.number == buffer.number; };
  if (std::ranges::any_of(announced_, known)) return true;
  if (announced_.size() >= MappedBuffers::kMost) return false;
  const FileDescriptor fd = shared_buffers().descriptor(buffer.number);
  NeighbourMessage message;
  message.kind = MessageKind::BUFFER;
  message.buffer = buffer.number;
  message.buffer_bytes = buffer.length;
  if (!fd.is_open() || send_message(met_.socket.get(), message, {fd.get()}) != 0) return false;
  announced_.push_back(buffer);
  return true;
}

bool Neighbour::announce(const ForeignMemory& memory) {
  const auto known = [&](const ForeignMemory& one) { return one.number == memory.number; };
  if (std::ranges::any_of(announced_memories_, known)) return true;
  NeighbourMessage message;
  message.kind = MessageKind::MEMORY;
  message.buffer = memory.number;
  message.process = static_cast<std::uint64_t>(memory.process);
  if (!met_.is_near || announced_memories_.size() >= LentMemories::kMost ||
      send_message(met_.socket.get(), message, {memory.lent}) != 0) {
    return false;
  }
  announced_memories_.push_back(memory);
  return true;
}

void Neighbour::forget_memories() {
  std::erase_if(announced_memories_, [&](const ForeignMemory& one) {
    if (!one.life.expired()) return false;
    NeighbourMessage message;
    message.kind = MessageKind::FORGET_MEMORY;
    message.buffer = one.number;
    return send_message(met_.socket.get(), message, {}) == 0;
  });
}

void Neighbour::forget_buffers() {
  const std::uint64_t removals = shared_buffers().removals();
  if (removals == removals_seen_) return;
  removals_seen_ = removals;
  lent_buffer_ = {};
  std::erase_if(announced_, [&](const SharedBuffer& one) {
    if (shared_buffers().find(one.address, one.length).number == one.number) return false;
    NeighbourMessage message;
    message.kind = MessageKind::FORGET;
    message.buffer = one.number;
    static_cast<void>(send_message(met_.socket.get(), message, {}));
    return true;
  });
}

// --- what was lent

bool Neighbour::Lent::is_granted_by(std::uint32_t index) const {
  return key == index || std::ranges::find(more_keys, index) != more_keys.end();
}

// Looks through what the peer is done with, before its place in the ring is written again.
void Neighbour::settle_lent() {
  writer_.look();
  while (!lent_.empty() && lent_.front().end <= writer_.consumed()) {
    Lent& done = lent_.front();
    // To look at the record costs as much as its way here did.
    const bool unread =
        unreadable_found_ != writer_.unreadable() && done.state() == RecordState::UNREADABLE;
    unreadable_found_ += unread ? 1 : 0;
    if (unread && !done.taken_back && !done.is_over) unreadable_.push_back(done.what);
    lent_.pop_front();
  }
}

// True if the peer will not look at it any more, and has not done so.
bool Neighbour::take_back(Lent& lent, Wait& wait) {
  std::uint32_t word = lent.ready;
  const std::uint32_t cancelled =
      lent.ready ^ raw(RecordState::READY) ^ raw(RecordState::CANCELLED);
  if (lent.taken_back || lent.slot->word.compare_exchange_strong(word, cancelled)) {
    return !std::exchange(lent.taken_back, true);
  }
  for (int looks = 1; lent.state() == RecordState::CLAIMED; ++looks) {
    writer_.look();
    if (lent.end <= writer_.consumed() || writer_.is_broken()) break;
    if (looks % kLooks == 0) {
      if (peer_is_gone() || is_over(wait)) writer_.give_up();
      sched_yield();
    }
  }
  return false;
}

bool Neighbour::is_over(Wait& wait) const {
  const std::uint64_t now_ns = met_.clock_ns();
  if (wait.until_ns == 0) wait.until_ns = now_ns + kMostWaitNs;
  return now_ns >= wait.until_ns;
}

bool Neighbour::peer_is_gone() const {
  if (met_.process.get() >= 0) {
    pollfd exit{met_.process.get(), POLLIN, 0};
    if (poll(&exit, 1, 0) > 0) return true;
  }
  return kill(met_.pid, 0) != 0 && errno == ESRCH;
}

void Neighbour::recall(std::uint32_t qpn, LentPayloads which) {
  settle();
  const auto concerns = [&](const LentPayload& one) {
    return one.qpn == qpn && one.is_one_of(which);
  };
  // Whoever has the queue pair next is not to hear of it.
  std::erase_if(unreadable_, concerns);
  Wait wait;
  for (Lent& lent : lent_) {
    if (!concerns(lent.what)) continue;
    static_cast<void>(take_back(lent, wait));
    lent.is_over = true;
  }
}

void Neighbour::revoke(std::uint32_t key_index) {
  settle();
  Wait wait;
  for (Lent& lent : lent_) {
    if (lent.is_granted_by(key_index) && take_back(lent, wait) && !lent.is_over) {
      unreadable_.push_back(lent.what);
    }
  }
}

// --- receiving

bool Neighbour::fetch(Adapter& adapter, std::uint64_t now_ns, int most) {
  int taken = 0;
  bool borrowed = false;
  fetched_bytes_ = 0;
  while (taken < most && fetched_bytes_ < kFetchBytes) {
    RingPlace behind;
    const RingRecord record = reader_.peek(reader_.place(), behind);
    if (record.slot == nullptr) break;
    heard_ = true;
    if (read_short(record, short_[0])) {
      bool more = true;
      const int run = take_short(adapter, behind, now_ns, most - taken, more);
      taken += run;
      if (!more) break;
      if (run > 0) continue;
    }
    take(adapter, record, now_ns);
    borrowed |= record.piece_count != 0;
    if (reader_.consume(behind)) wake();
    ++taken;
  }
  // Who has lent something waits until it has it back. A fence for each would wait for all that was
  // copied.
  if (borrowed && reader_.tell()) wake();
  settle();
  // The adapter tries again behind this call, and says so if there is still none.
  if (has_new_room()) waits_for_room_ = false;
  if (!unreadable_.empty()) {
    for (const LentPayload& one : std::exchange(unreadable_, {})) {
      adapter.payload_unreadable(one, now_ns);
      ++taken;
    }
  }
  return taken > 0;
}

bool Neighbour::read_short(const RingRecord& record, ShortPacket& packet) const {
  if (record.piece_count != 0 || record.psns != 1 ||
      !decode_short(record.headers, record.header_bytes, packet)) {
    return false;
  }
  packet.payload = {record.rest, record.rest_bytes()};
  return true;
}

// The first has been read, and those behind it come along. How many were taken; if there are more,
// the next one has to be taken in the general way.
int Neighbour::take_short(Adapter& adapter, RingPlace behind, std::uint64_t now_ns, int most,
                          bool& more) {
  const std::size_t limit = std::min(kShortAtOnce, static_cast<std::size_t>(most));
  behind_short_[0] = behind;
  std::size_t count = 1;
  for (; count < limit; ++count) {
    RingPlace behind_this;
    const RingRecord record = reader_.peek(behind, behind_this);
    more = record.slot != nullptr;
    if (!more || !read_short(record, short_[count])) break;
    behind = behind_short_[count] = behind_this;
  }
  const std::size_t taken =
      adapter.receive_short(from_peer_, std::span(short_).first(count), now_ns);
  more |= taken < count;
  if (taken > 0 && reader_.consume(behind_short_[taken - 1])) wake();
  return static_cast<int>(taken);
}

bool Neighbour::take_acknowledge(Adapter& adapter, const RingRecord& record,
                                 std::uint64_t now_ns) const {
  PlainAcknowledge packet;
  return record.piece_count == 0 && record.psns == 1 && record.rest_bytes() == 0 &&
         decode_acknowledge(record.headers, record.header_bytes, packet) &&
         adapter.receive_acknowledge(from_peer_, packet, now_ns);
}

void Neighbour::take(Adapter& adapter, const RingRecord& record, std::uint64_t now_ns) {
  if (take_acknowledge(adapter, record, now_ns)) return;
  if (record.header_bytes < kBthBytes || record.header_bytes > kMaxHeaderBytes ||
      record.piece_count > kMaxPieces || record.psns < 1 || record.psns > kMaxPackets ||
      record.piece_count * sizeof(PieceOnTheWay) > record.rest_bytes()) {
    return;
  }
  // Out of the shared memory first: the peer could change it after it was checked.
  HeaderBytes header;
  std::memcpy(header.data(), record.headers, record.header_bytes);
  if (record.piece_count == 0) {
    if (!decode_incoming(header, record) ||
        (record.rest_bytes() > 0 && !incoming_.info->has(kHasPayload))) {
      return;
    }
    incoming_.payload = {record.rest, record.rest_bytes()};
    static_cast<void>(adapter.receive_local(from_peer_, incoming_, now_ns));
    return;
  }
  ShortPacket brief;
  const bool is_brief = decode_short(header.data(), record.header_bytes, brief);
  if (!is_brief && !decode_incoming(header, record)) return;
  std::atomic<std::uint32_t>& word = record.slot->word;
  std::uint32_t ready = reader_.ready_word();
  const std::uint32_t lap = ready ^ raw(RecordState::READY);
  if (!word.compare_exchange_strong(ready, lap | raw(RecordState::CLAIMED))) return;
  std::uint64_t bytes = 0;
  bool read = locate(record.rest, record.piece_count);
  if (read) {
    for (const MemoryPiece& piece : pieces_) bytes += piece.length;
    fetched_bytes_ += bytes;
    read = bytes <= kLocalPacketBytes;
  }
  if (read && !(is_brief && take_lent(adapter, brief, record.psns, now_ns)) &&
      (!is_brief || decode_incoming(header, record))) {
    incoming_.pieces = pieces_;
    incoming_.pieces_bytes = bytes;
    read = adapter.receive_local(from_peer_, incoming_, now_ns);
  }
  if (!read) reader_.call_unreadable(record);
}

// A packet of any kind, without its payload. False: no neighbour sends such a thing.
bool Neighbour::decode_incoming(const HeaderBytes& header, const RingRecord& record) {
  Packet& packet = incoming_;
  if (decode_packet({header.data(), record.header_bytes + kIcrcBytes}, packet) !=
          DecodeStatus::OK ||
      packet.info->header_bytes != record.header_bytes ||
      opcode_transport(packet.bth.opcode) == OpcodeTransport::UD || packet.info->has(kCnp)) {
    return false;
  }
  packet.psns = record.psns;
  packet.payload = {};
  packet.pieces = {};
  packet.pieces_bytes = 0;
  const bool may_refer = packet.info->has(kMayRefer) && !packet.info->has(kAtomicWrite);
  return may_refer || (record.psns == 1 && record.piece_count == 0);
}

// A whole message in one piece, which has been located. False: it has to be taken in the general
// way.
bool Neighbour::take_lent(Adapter& adapter, ShortPacket& packet, std::uint32_t psns,
                          std::uint64_t now_ns) {
  const MemoryPiece& piece = pieces_.front();
  if (pieces_.size() != 1 || piece.space->foreign() != nullptr) return false;
  packet.psns = psns;
  packet.payload = {reinterpret_cast<const std::uint8_t*>(piece.address), piece.length};
  return adapter.receive_lent(from_peer_, packet, *piece.space, now_ns);
}

// Where the pieces of a payload are, seen from here. Messages that were not heard yet may tell of
// some, and have others forgotten: then all are looked for again.
bool Neighbour::locate(const std::uint8_t* from, std::size_t count) {
  if (locate_known(from, count)) return true;
  static_cast<void>(hear(kMostUnheard));
  return locate_known(from, count);
}

bool Neighbour::locate_known(const std::uint8_t* from, std::size_t count) {
  pieces_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    PieceOnTheWay way;
    std::memcpy(&way, from + i * sizeof way, sizeof way);
    if (way.length > kLocalPacketBytes) return false;
    if ((way.buffer & kForeign) != 0) {
      AddressSpace* space = memories_.find(way.buffer & ~kForeign);
      if (space == nullptr) return false;
      pieces_.push_back({space, way.address, way.length});
    } else if (way.buffer != 0) {
      const std::uint8_t* at = mapped_.at(way.buffer, way.address, way.length);
      if (at == nullptr) return false;
      pieces_.push_back({&own_memory_, reinterpret_cast<std::uintptr_t>(at), way.length});
    } else if (own_process_) {
      pieces_.push_back({&own_memory_, way.address, way.length});
    } else if (met_.readable) {
      pieces_.push_back({&memory_, way.address, way.length});
    } else {
      return false;
    }
  }
  return true;
}

void Neighbour::give_up_if_still() {
  writer_.look();
  if (std::exchange(consumed_when_asked_, writer_.consumed()) == writer_.consumed()) {
    writer_.give_up();
  }
}

void Neighbour::wish_to_be_woken() {
  reader_.shared().reader_asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Neighbour::hear(int most) {
  NeighbourMessage message;
  std::vector<FileDescriptor> fds;
  for (; most > 0; --most) {
    const int error = receive_message(met_.socket.get(), message, fds);
    if (error == EAGAIN) return true;
    if (error != 0) {
      close_all(fds);
      return false;
    }
    if (message.kind == MessageKind::BUFFER && fds.size() == 1) {
      mapped_.map(message.buffer, message.buffer_bytes, fds[0]);
    } else if (message.kind == MessageKind::FORGET) {
      mapped_.unmap(message.buffer);
    } else if (message.kind == MessageKind::MEMORY && fds.size() == 1 && met_.is_near) {
      memories_.add(message.buffer, met_.counts_alike ? static_cast<pid_t>(message.process) : 0,
                    std::move(fds[0]));
    } else if (message.kind == MessageKind::FORGET_MEMORY) {
      memories_.remove(message.buffer);
    } else if (message.kind == MessageKind::AGREED) {
      agreed_ = true;
    }
    if (!close_all(fds)) return false;
  }
  return true;
}

void Neighbour::abandon() {
  met_.socket.reset();
  met_.bell.reset();
  met_.process.reset();
  met_.segment->abandon();
}

}  // namespace softhca
