// What goes to the other adapter: packets with what they bring, and where the rest of it lies.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "memory/guarded_access.hpp"
#include "memory/often_copied.hpp"
#include "neighbour/neighbour.hpp"

namespace softhca {
namespace {

// Longer records have half gone by themselves when they are complete.
constexpr std::uint32_t kHastenedBytes = 1024;
// Of one that is copied over: BTH, RETH and an immediate, and its payload.
constexpr std::uint32_t kShortRecordBytes = kBthBytes + 16 + 4 + kLocalCopiedBytes;

}  // namespace

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
  if (writer_.is_broken()) return 0;
  const bool all_fit = writer_.has_room(packets.size(), kShortRecordBytes);
  std::size_t sent = 0;
  for (; sent < packets.size() && (all_fit || writer_.has_room()); ++sent) {
    const ShortPacket& packet = packets[sent];
    RingPlace behind;
    const RingRecord record =
        writer_.begin_surely(static_cast<std::uint32_t>(packet.header_bytes()),
                             static_cast<std::uint32_t>(packet.payload.size()), behind);
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

// A record of one piece, whose headers `encode` writes. False: there is no room, or the peer cannot
// fetch it.
template <class Encode>
bool Neighbour::lend_piece(const MemoryPiece& piece, std::size_t header_bytes, std::uint32_t psns,
                           const LentPayload& what, Encode encode) {
  if (!has_room() || !can_fetch({&piece, 1})) return false;
  const PieceOnTheWay way = way_to(piece);
  RingPlace behind;
  RingRecord record = writer_.begin(static_cast<std::uint32_t>(header_bytes), sizeof way, behind);
  if (record.slot == nullptr) return false;
  record.psns = psns;
  record.piece_count = 1;
  encode(record.headers);
  std::memcpy(record.rest, &way, sizeof way);
  Lent lent;
  lent.what = what;
  lent.key = piece.key >> 8;
  publish_lent(record, behind, std::move(lent));
  if (writer_.take_sleeper(met_.is_ordered)) wake();
  return true;
}

// A message in one piece, in memory of this process.
bool Neighbour::lend(const ShortPacket& packet, std::uint32_t qpn, std::uint32_t lkey) {
  return lend_piece({&own_memory_, reinterpret_cast<std::uint64_t>(packet.payload.data()),
                     packet.payload.size(), lkey},
                    packet.header_bytes(), packet.psns, {qpn, packet.psn, false},
                    [&](std::uint8_t* headers) { encode_short(packet, headers); });
}

bool Neighbour::send_answer(const WholeAnswer& packet, std::uint32_t qpn, std::uint32_t rkey) {
  const auto encode = [&](std::uint8_t* headers) { encode_answer(packet, headers); };
  const ByteView payload = packet.payload;
  if (payload.size() > kLocalCopiedBytes) {
    return lend_piece(
        {&own_memory_, reinterpret_cast<std::uint64_t>(payload.data()), payload.size(), rkey},
        PlainAcknowledge::kHeaderBytes, packet.psns, {qpn, packet.acknowledge.psn, true}, encode);
  }
  RingPlace behind;
  RingRecord record = writer_.begin(PlainAcknowledge::kHeaderBytes,
                                    static_cast<std::uint32_t>(payload.size()), behind);
  if (record.slot == nullptr) return false;
  record.psns = packet.psns;
  encode(record.headers);
  if (guarded_copy(record.rest, payload.data(), payload.size()) != 0) return false;
  publish(record, behind);
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

const SharedBuffer* Neighbour::common_buffer(std::uint64_t address, std::uint64_t length) {
  if (lent_buffer_.holds(address, length)) return &lent_buffer_;
  const SharedBuffer buffer = shared_buffers().find(address, length);
  if (buffer.number == 0 || !announce(buffer)) return nullptr;
  lent_buffer_ = buffer;
  return &lent_buffer_;
}

// The descriptor arrives before the record that needs it. Who has it can write to all of the file,
// whatever the keys grant: it is given to those that could do as much anyway.
bool Neighbour::announce(const SharedBuffer& buffer) {
  const auto known = [&](const SharedBuffer& one) { return one.number == buffer.number; };
  if (std::ranges::any_of(announced_, known)) return true;
  if (!met_.is_near || announced_.size() >= MappedBuffers::kMost) return false;
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

}  // namespace softhca
