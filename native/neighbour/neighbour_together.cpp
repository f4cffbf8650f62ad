// Payloads in the memory of the peer's own that follow each other to one queue pair. A system call
// for each would take a quarter of the time of copying 64 KiB, and so one fetches several, before
// their packets are taken one by one as ever (docs/decisions/0027-fetched-together.md).
#include <algorithm>
#include <cstring>

#include "neighbour/neighbour.hpp"

namespace softhca {

// One piece, which no buffer that both have mapped holds.
bool Neighbour::is_in_peers_memory(const RingRecord& record, MemoryPiece& piece) {
  if (record.piece_count != 1 || own_process_ || !met_.readable ||
      record.rest_bytes() < sizeof(PieceOnTheWay)) {
    return false;
  }
  PieceOnTheWay way;
  std::memcpy(&way, record.rest, sizeof way);
  piece = {&memory_, way.address, way.length};
  return way.buffer == 0 && way.length <= kLocalPacketBytes;
}

// Those from the reader's place on that can be fetched together, as far as the adapter will take
// them.
std::size_t Neighbour::claim_some(Adapter& adapter, std::size_t most) {
  LookAhead ahead;
  RingPlace place = reader_.place();
  std::uint64_t bytes = fetched_bytes_;
  std::size_t count = 0;
  while (count < std::min(most, claimed_.size())) {
    Claimed& one = claimed_[count];
    one.record = reader_.peek(place, one.behind);
    if (one.record.slot == nullptr || !is_in_peers_memory(one.record, one.piece) ||
        !copy_header(one.record, one.header) || !one.packets.decode(one.header, one.record)) {
      break;
    }
    bytes += one.piece.length;
    if (count > 0 && bytes > kFetchBytes) break;
    const auto place_of = [&](auto& packet) {
      packet.psns = one.record.psns;
      packet.payload = {reinterpret_cast<const std::uint8_t*>(one.piece.address), one.piece.length};
      return adapter.place_ahead(from_peer_, packet, ahead);
    };
    std::uint8_t* const to =
        one.packets.is_message ? place_of(one.packets.message) : place_of(one.packets.answer);
    if (to == nullptr || !RingReader::claim(one.record, place)) break;
    memory_.expect(one.piece.address, {to, one.piece.length});
    place = one.behind;
    ++count;
  }
  return count;
}

// How many were taken.
int Neighbour::take_together(Adapter& adapter, const RingRecord& first, std::uint64_t now_ns,
                             int most) {
  MemoryPiece piece;
  if (!is_in_peers_memory(first, piece)) return 0;
  const std::size_t count = claim_some(adapter, static_cast<std::size_t>(most));
  if (count > 1) memory_.copy_ahead();
  for (Claimed& one : std::span(claimed_).first(count)) {
    pieces_.assign(1, one.piece);
    take_claimed(adapter, one.header, one.record, one.packets, true, now_ns);
    if (reader_.consume(one.behind)) wake();
  }
  memory_.forget_ahead();
  return static_cast<int>(count);
}

}  // namespace softhca
