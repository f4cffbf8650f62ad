// One direction between two adapters of a host: records in shared memory, written by one process
// and read by the other.
//
// A record is a slot of one cache line, which holds all of a short record; what does not fit there
// lies in a second area, the body. The first word of a slot says in which lap it was written, so
// that nothing has to be cleared behind a record: between two processors each line that is written
// costs as much as the whole record. For the same reason the reader tells only now and then how far
// it has come.
//
// Neither side believes what the other has written: places are kept outside the shared memory, and
// lengths are checked.
#pragma once

#include <atomic>
#include <cstdint>

#include "vocabulary/bytes.hpp"

namespace softhca {

inline constexpr std::uint64_t kCellBytes = 64;
inline constexpr std::uint64_t kSlots = 2048;
inline constexpr std::uint64_t kBodyBytes = 1u << 19;
// Headers and what follows them.
inline constexpr std::uint32_t kMaxRecordBytes = 32 * 1024 + 64;
inline constexpr std::uint32_t kInlineBytes = 48;

// The low byte of a slot's word; the others are the lap.
enum class RecordState : std::uint32_t {
  READY = 1,
  CLAIMED = 2,     // The reader is at what the record refers to.
  UNREADABLE = 3,  // It was not there.
  CANCELLED = 4,   // The writer has taken it back.
};
constexpr std::uint32_t raw(RecordState state) { return static_cast<std::uint32_t>(state); }

struct SharedSlot {
  alignas(kCellBytes) std::atomic<std::uint32_t> word;
  std::uint32_t bytes;  // Of headers and what follows them.
  std::uint32_t psns;
  std::uint16_t header_bytes;  // Of the packet's headers, which come first.
  std::uint16_t piece_count;   // Where the payload lies; 0: it follows the headers.
  std::uint8_t inlined[kInlineBytes];
};
static_assert(sizeof(SharedSlot) == kCellBytes && std::atomic<std::uint32_t>::is_always_lock_free);

struct RingShared {
  alignas(kCellBytes) std::atomic<std::uint64_t> consumed_slots;
  std::atomic<std::uint64_t> consumed_bytes;  // Of the body.
  std::atomic<std::uint32_t> unreadable;      // Records that were, of those consumed and some more.
  alignas(kCellBytes) std::atomic<std::uint32_t> reader_asleep;  // It wants to be woken.
  std::atomic<std::uint32_t> reader_fetches;  // It can fetch payloads that are left in place.
  std::atomic<std::uint32_t> reader_orders;   // It asks for a barrier before it sleeps.
  alignas(kCellBytes) std::atomic<std::uint32_t> writer_waits;  // For room.
  SharedSlot slots[kSlots];
  alignas(kCellBytes) std::uint8_t body[kBodyBytes];
};

struct RingRecord;

// A place that both sides reckon alike.
struct RingPlace {
  std::uint64_t slots = 0;
  std::uint64_t body = 0;  // Bytes, with those that were skipped at the end of a lap.

  std::uint32_t lap_bits() const { return static_cast<std::uint32_t>(slots / kSlots + 1) << 8; }
  // Where such a record lies; moves on behind it.
  void put(RingShared& ring, RingRecord& record);
};

// What a record consists of. Headers that fit lie in the slot, and so does what follows them if it
// fits there too.
struct RingRecord {
  SharedSlot* slot = nullptr;  // Null: there is none.
  std::uint8_t* headers = nullptr;
  std::uint8_t* rest = nullptr;
  // As they were when they were checked: in the slot they may change at any time.
  std::uint32_t bytes = 0;
  std::uint32_t header_bytes = 0;
  std::uint32_t psns = 1;
  std::uint32_t piece_count = 0;

  std::uint32_t rest_bytes() const { return bytes - header_bytes; }
};

class RingWriter {
 public:
  explicit RingWriter(RingShared& ring) : ring_(ring) {}

  // Room for a record, or none, and the place behind it; it is READY with publish().
  RingRecord begin(std::uint32_t header_bytes, std::uint32_t rest_bytes, RingPlace& behind);
  // The same where has_room() has said that there is, and the reader is what it should be.
  RingRecord begin_surely(std::uint32_t header_bytes, std::uint32_t rest_bytes, RingPlace& behind);
  void publish(const RingRecord& record, RingPlace behind);
  // Before that, for what lies in the body and is short: it is read as soon as it is seen. Where
  // much is written in a row it costs more than it saves.
  void hasten(const RingRecord& record);
  // The longest record would find room; and so many of up to so many bytes.
  bool has_room() const;
  bool has_room(std::uint64_t records, std::uint64_t bytes) const;

  // Records written and consumed so far, of which look() asks the reader.
  std::uint64_t produced() const { return place_.slots; }
  std::uint64_t consumed() const { return consumed_.slots; }
  void look();
  // Of the records that the reader is through with, how many it called unreadable.
  std::uint32_t unreadable() const { return ring_.unreadable.load(std::memory_order_relaxed); }
  // The reader has told since.
  bool has_news() const {
    return ring_.consumed_slots.load(std::memory_order_relaxed) != consumed_.slots;
  }
  // What the word of the record that begin() gave last is when it is READY.
  std::uint32_t ready_word() const { return place_.lap_bits() | raw(RecordState::READY); }
  // The reader is not what it should be.
  bool is_broken() const { return broken_; }
  void give_up() { broken_ = true; }
  // A reader that sleeps is to be woken; the wish is gone then. `is_ordered`: this process passes
  // the barriers that others ask for.
  bool take_sleeper(bool is_ordered);
  RingShared& shared() { return ring_; }

 private:
  bool fits(const RingPlace& behind) const {
    return behind.slots - consumed_.slots <= kSlots && behind.body - consumed_.body <= kBodyBytes;
  }

  RingShared& ring_;
  RingPlace place_;  // Behind what was published.
  RingPlace consumed_;
  bool broken_ = false;
};

class RingReader {
 public:
  explicit RingReader(RingShared& ring) : ring_(ring) {}

  // Where the next record is.
  RingPlace place() const { return place_; }
  // The record there, or further on, its lengths copied out and checked; none if there is none.
  // `behind` is where the one after it is.
  RingRecord peek(RingPlace place, RingPlace& behind);
  // Done with everything before such a place. The writer hears of it now and then, or with tell().
  // True: it waits for the room.
  bool consume(RingPlace behind);
  bool tell();
  // Keeps the writer of a record at that place from taking it back. False: it has done so.
  static bool claim(const RingRecord& record, const RingPlace& place);
  // What the record that peek() gave refers to is not there.
  void call_unreadable(const RingRecord& record);
  bool has_record() const { return is_written(place_); }
  // Nothing has come yet: the second line of what comes is fetched once more, so that the writer's
  // changes to it are asked for while the word is waited for.
  void expect() const { __builtin_prefetch(ring_.body + place_.body % kBodyBytes); }
  bool is_broken() const { return broken_; }
  RingShared& shared() { return ring_; }

 private:
  bool is_written(const RingPlace& place) const {
    const SharedSlot& next = ring_.slots[place.slots % kSlots];
    return (next.word.load(std::memory_order_acquire) & ~0xffu) == place.lap_bits();
  }

  RingShared& ring_;
  RingPlace place_;
  RingPlace told_;
  bool broken_ = false;
};

// --- what each short message passes

[[gnu::always_inline]] inline void RingPlace::put(RingShared& ring, RingRecord& record) {
  record.slot = &ring.slots[slots % kSlots];
  ++slots;
  std::uint8_t* const inlined = record.slot->inlined;
  record.headers = inlined;
  record.rest = inlined + record.header_bytes;
  if (record.bytes <= kInlineBytes) return;
  const bool headers_fit = record.header_bytes <= kInlineBytes;
  const std::uint32_t needed = headers_fit ? record.rest_bytes() : record.bytes;
  const std::uint64_t cells = (needed + kCellBytes - 1) / kCellBytes * kCellBytes;
  const std::uint64_t to_end = kBodyBytes - body % kBodyBytes;
  if (cells > to_end) body += to_end;
  std::uint8_t* const at = ring.body + body % kBodyBytes;
  body += cells;
  if (!headers_fit) record.headers = at;
  record.rest = headers_fit ? at : at + record.header_bytes;
}

inline bool RingWriter::has_room() const {
  // What may be left unused at the end of a lap, and the record.
  return fits({place_.slots + 1, place_.body + std::uint64_t{2} * kMaxRecordBytes});
}

inline bool RingWriter::has_room(std::uint64_t records, std::uint64_t bytes) const {
  // Each ends a cell that it may begin, and what may be left unused is less than one of them.
  return fits({place_.slots + records, place_.body + (records + 1) * (bytes + kCellBytes)});
}

[[gnu::always_inline]] inline RingRecord RingWriter::begin_surely(std::uint32_t header_bytes,
                                                                  std::uint32_t rest_bytes,
                                                                  RingPlace& behind) {
  RingRecord record;
  record.bytes = header_bytes + rest_bytes;
  record.header_bytes = header_bytes;
  behind = place_;
  behind.put(ring_, record);
  return record;
}

[[gnu::always_inline]] inline RingRecord RingWriter::begin(std::uint32_t header_bytes,
                                                           std::uint32_t rest_bytes,
                                                           RingPlace& behind) {
  RingRecord record = begin_surely(header_bytes, rest_bytes, behind);
  if (!fits(behind)) look();
  if (broken_ || record.bytes > kMaxRecordBytes || !fits(behind)) return {};
  return record;
}

// So many records before its turn a line is asked for: its way between two processors may take as
// long as writing several records.
inline constexpr std::uint64_t kLinesAhead = 4;

// Brings a line here that is to be written: no other processor keeps a copy. What the compiler
// makes of a prefetch for writing on the oldest x86-64 is one for reading, and the copy of the
// reader would have to be called back when the line is written.
inline void prefetch_to_write(const void* at) {
#if defined(__x86_64__)
  asm volatile("prefetchw (%0)" : : "r"(at));
#else
  __builtin_prefetch(at, 1);
#endif
}

[[gnu::always_inline]] inline void RingWriter::publish(const RingRecord& record, RingPlace behind) {
  SharedSlot& slot = *record.slot;
  slot.bytes = record.bytes;
  slot.psns = record.psns;
  slot.header_bytes = static_cast<std::uint16_t>(record.header_bytes);
  slot.piece_count = static_cast<std::uint16_t>(record.piece_count);
  slot.word.store(ready_word(), std::memory_order_release);
  place_ = behind;
  // Records to come find their lines here, instead of fetching them from the reader's processor.
  constexpr std::uint64_t kAhead = kLinesAhead - 1;
  prefetch_to_write(&ring_.slots[(place_.slots + kAhead) % kSlots]);
  prefetch_to_write(ring_.body + (place_.body + kAhead * kCellBytes) % kBodyBytes);
}

[[gnu::always_inline]] inline RingRecord RingReader::peek(RingPlace place, RingPlace& behind) {
  if (broken_ || !is_written(place)) return {};
  // A record that does not fit its slot has its second line under way by the time it is asked for.
  __builtin_prefetch(ring_.body + place.body % kBodyBytes);
  SharedSlot& slot = ring_.slots[place.slots % kSlots];
  const std::uint32_t state = slot.word.load(std::memory_order_relaxed) & 0xff;
  RingRecord record;
  record.bytes = slot.bytes;
  record.header_bytes = slot.header_bytes;
  record.psns = slot.psns;
  record.piece_count = slot.piece_count;
  const bool known = state == raw(RecordState::READY) || state == raw(RecordState::CANCELLED);
  if (!known || record.bytes > kMaxRecordBytes || record.header_bytes > record.bytes) {
    broken_ = true;
    return {};
  }
  behind = place;
  behind.put(ring_, record);
  return record;
}

}  // namespace softhca
