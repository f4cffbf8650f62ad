// One direction between two adapters of a host: records of varying length in shared memory, written
// by one process and read by the other.
//
// A record begins at a cell of 64 bytes, and its first word says what it is. The writer clears the
// first word behind a record before it publishes the record, so that the reader never takes bytes
// of an earlier lap for one. Neither side believes what the other has written: places are kept
// outside the shared memory, and lengths are checked.
#pragma once

#include <atomic>
#include <cstdint>

#include "vocabulary/bytes.hpp"

namespace softhca {

inline constexpr std::uint64_t kCellBytes = 64;
inline constexpr std::uint64_t kRingBytes = 1u << 20;
inline constexpr std::uint32_t kMaxRecordBytes = 8192;

enum class RecordState : std::uint32_t {
  EMPTY = 0,
  READY = 1,
  CLAIMED = 2,     // The reader is at what the record refers to.
  UNREADABLE = 3,  // It was not there.
  CANCELLED = 4,   // The writer has taken it back.
  WRAP = 5,        // The next record is at the beginning.
};

struct RecordHead {
  std::atomic<std::uint32_t> state;
  std::uint32_t bytes;  // Of what follows the head.
  std::uint32_t psns;
  std::uint16_t header_bytes;  // Of the packet's headers, which come first.
  std::uint16_t piece_count;   // Where the payload lies; 0: it follows the headers.
};
static_assert(sizeof(RecordHead) == 16 && std::atomic<std::uint32_t>::is_always_lock_free);

struct RingShared {
  alignas(kCellBytes) std::atomic<std::uint64_t> consumed;
  alignas(kCellBytes) std::atomic<std::uint32_t> reader_asleep;  // It wants to be woken.
  std::atomic<std::uint32_t> reader_fetches;  // It can fetch payloads that are left in place.
  alignas(kCellBytes) std::atomic<std::uint32_t> writer_waits;  // For room.
  alignas(kCellBytes) std::uint8_t cells[kRingBytes];
};

class RingWriter {
 public:
  explicit RingWriter(RingShared& ring) : ring_(ring) {}

  // Room for a record of this length, or null; it is READY with publish().
  RecordHead* begin(std::uint32_t bytes);
  void publish(RecordHead& record);

  // Bytes written and consumed so far. `consumed` is refreshed by begin() and look().
  std::uint64_t produced() const { return produced_; }
  std::uint64_t consumed() const { return consumed_; }
  void look();
  // The reader is not what it should be.
  bool is_broken() const { return broken_; }
  // A reader that sleeps is to be woken; the wish is gone then.
  bool take_sleeper();
  RingShared& shared() { return ring_; }

 private:
  bool fits(std::uint64_t bytes);
  RecordHead* at(std::uint64_t place) {
    return reinterpret_cast<RecordHead*>(ring_.cells + place % kRingBytes);
  }

  RingShared& ring_;
  std::uint64_t produced_ = 0;
  std::uint64_t consumed_ = 0;
  bool broken_ = false;
};

class RingReader {
 public:
  explicit RingReader(RingShared& ring) : ring_(ring) {}

  // The next record, its length copied out; null if there is none.
  RecordHead* peek(std::uint32_t& bytes);
  // Done with the record that peek() gave. True: the writer waits for the room.
  bool consume(std::uint32_t bytes);
  bool has_record() const;
  bool is_broken() const { return broken_; }
  RingShared& shared() { return ring_; }

 private:
  RecordHead* at(std::uint64_t place) const {
    return reinterpret_cast<RecordHead*>(ring_.cells + place % kRingBytes);
  }

  RingShared& ring_;
  std::uint64_t place_ = 0;
  bool broken_ = false;
};

}  // namespace softhca
