// What comes from the other adapter. Nothing of it is believed: it is copied out of the shared
// memory before it is checked.
#include <algorithm>
#include <cstring>
#include <utility>

#include "neighbour/neighbour.hpp"

namespace softhca {
namespace {

// More messages than a socket holds: what was said before a record is heard before it.
constexpr int kMostUnheard = 1024;
constexpr std::uint32_t kMayRefer = kSend | kWrite | kReadResponse;

}  // namespace

bool Neighbour::fetch(Adapter& adapter, std::uint64_t now_ns, int most) {
  int taken = 0;
  bool borrowed = false;
  fetched_bytes_ = 0;
  while (taken < most && fetched_bytes_ < kFetchBytes) {
    RingPlace behind;
    const RingRecord record = reader_.peek(reader_.place(), behind);
    if (record.slot == nullptr) break;
    heard_ = true;
    if (read_first_short(record)) {
      bool more = true;
      const int run = take_short(adapter, behind, now_ns, most - taken, more);
      taken += run;
      if (!more) break;
      if (run > 0) continue;
    }
    if (const int run = take_together(adapter, record, now_ns, most - taken); run > 0) {
      taken += run;
      borrowed = true;
      continue;
    }
    take(adapter, record, now_ns);
    borrowed |= record.piece_count != 0;
    if (reader_.consume(behind)) wake();
    ++taken;
  }
  // Who has lent something waits until it has it back. A fence for each would wait for all that was
  // copied.
  if (borrowed && reader_.tell()) wake();
  // Nothing is sent to who lent what could not be read, and it may sleep.
  if (std::exchange(owes_refusal_, false) && writer_.take_sleeper(met_.is_ordered)) wake();
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

// The first of several. Most often it is like the first of those before, which is still there.
bool Neighbour::read_first_short(const RingRecord& record) {
  ShortPacket& packet = short_[0];
  if (knows_short_ && record.piece_count == 0 && record.psns == 1 &&
      is_alike(record.headers, record.header_bytes, packet, first_of_short_)) {
    decode_rest(record.headers, packet);
    packet.payload = {record.rest, record.rest_bytes()};
    return true;
  }
  knows_short_ = read_short(record, packet);
  first_of_short_ = first_of(packet);
  return knows_short_;
}

// One behind the first, which most are like.
bool Neighbour::read_next_short(const RingRecord& record, ShortPacket& packet) const {
  if (record.piece_count != 0 || record.psns != 1 ||
      !is_alike(record.headers, record.header_bytes, short_[0], first_of_short_)) {
    return read_short(record, packet);
  }
  packet = short_[0];
  decode_rest(record.headers, packet);
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
    if (!more || !read_next_short(record, short_[count])) break;
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

// Out of the shared memory first: the peer could change it after it was checked. False: no
// neighbour sends such a record.
bool Neighbour::copy_header(const RingRecord& record, HeaderBytes& header) {
  if (record.header_bytes < kBthBytes || record.header_bytes > kMaxHeaderBytes ||
      record.piece_count > kMaxPieces || record.psns < 1 || record.psns > kMaxPackets ||
      record.piece_count * sizeof(PieceOnTheWay) > record.rest_bytes()) {
    return false;
  }
  std::memcpy(header.data(), record.headers, record.header_bytes);
  return true;
}

void Neighbour::take(Adapter& adapter, const RingRecord& record, std::uint64_t now_ns) {
  if (take_acknowledge(adapter, record, now_ns)) return;
  HeaderBytes header;
  if (!copy_header(record, header)) return;
  if (record.piece_count == 0) {
    ShortPacket request;
    if (record.psns == 1 && record.rest_bytes() == 0 &&
        decode_read(header.data(), record.header_bytes, request) &&
        adapter.receive_read(from_peer_, request, now_ns)) {
      return;
    }
    WholeAnswer answer;
    answer.payload = {record.rest, record.rest_bytes()};
    answer.psns = record.psns;
    if (decode_answer(header.data(), record.header_bytes, answer) &&
        adapter.receive_lent(from_peer_, answer, own_memory_, now_ns)) {
      return;
    }
    if (!decode_incoming(header, record) ||
        (record.rest_bytes() > 0 && !incoming_.info->has(kHasPayload))) {
      return;
    }
    incoming_.payload = {record.rest, record.rest_bytes()};
    static_cast<void>(adapter.receive_local(from_peer_, incoming_, now_ns));
    return;
  }
  take_lent(adapter, header, record, now_ns);
}

// A packet whose payload stays where it is.
void Neighbour::take_lent(Adapter& adapter, const HeaderBytes& header, const RingRecord& record,
                          std::uint64_t now_ns) {
  LentPackets packets;
  if (!packets.decode(header, record) && !decode_incoming(header, record)) return;
  if (!RingReader::claim(record, reader_.place())) return;
  const bool located = locate(record.rest, record.piece_count);
  take_claimed(adapter, header, record, packets, located, now_ns);
}

// The same when the peer can no longer take it back, and `pieces_` says where it is, if it has been
// found.
void Neighbour::take_claimed(Adapter& adapter, const HeaderBytes& header, const RingRecord& record,
                             LentPackets& packets, bool located, std::uint64_t now_ns) {
  std::uint64_t bytes = 0;
  bool read = located;
  if (read) {
    for (const MemoryPiece& piece : pieces_) bytes += piece.length;
    fetched_bytes_ += bytes;
    read = bytes <= kLocalPacketBytes;
  }
  const bool taken =
      read &&
      ((packets.is_message && take_plainly(adapter, packets.message, record.psns, now_ns)) ||
       (packets.is_answer && take_plainly(adapter, packets.answer, record.psns, now_ns)));
  if (read && !taken && (!packets.is_plain() || decode_incoming(header, record))) {
    incoming_.pieces = pieces_;
    incoming_.pieces_bytes = bytes;
    read = adapter.receive_local(from_peer_, incoming_, now_ns);
  }
  if (read) return;
  reader_.call_unreadable(record);
  owes_refusal_ = true;
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

// A whole message, or answer, in one piece, which has been located. False: it has to be taken in
// the general way.
template <class LentPacket>
bool Neighbour::take_plainly(Adapter& adapter, LentPacket& packet, std::uint32_t psns,
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

}  // namespace softhca
