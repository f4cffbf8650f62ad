#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "neighbour/shared_ring.hpp"
#include "neighbour/shared_segment.hpp"
#include "tests/check.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

struct Ring {
  Ring() { CHECK_EQ(segment.create(), 0); }
  RingShared& shared() { return segment.layout().rings[0]; }
  SharedSegment segment;
};

struct Lengths {
  std::uint32_t headers;
  std::uint32_t rest;
};

Lengths lengths_of(Random& random) {
  const auto headers = static_cast<std::uint32_t>(random.below(65));
  const std::uint64_t rest =
      random.below(8) == 0 ? random.below(kMaxRecordBytes + 1 - headers) : random.below(200);
  return {headers, static_cast<std::uint32_t>(rest)};
}

TEST("neighbour ring: records of any length keep their order and bytes over many laps") {
  constexpr int kRecords = 40'000;
  Ring ring;
  std::thread writer([&] {
    RingWriter out(ring.shared());
    Random random(softhca::testing::seed());
    for (int i = 0; i < kRecords; ++i) {
      const Lengths lengths = lengths_of(random);
      RingRecord record;
      RingPlace behind;
      while ((record = out.begin(lengths.headers, lengths.rest, behind)).slot == nullptr) {
        std::this_thread::yield();
      }
      record.psns = static_cast<std::uint32_t>(i);
      std::memset(record.headers, i & 0xff, lengths.headers);
      std::memset(record.rest, ~i & 0xff, lengths.rest);
      out.publish(record, behind);
    }
  });
  RingReader in(ring.shared());
  Random random(softhca::testing::seed());
  int wrong = 0;
  // Several may be read before the first of them is consumed.
  Random ahead(softhca::testing::seed() + 1);
  RingPlace at_next = in.place();
  for (int i = 0; i < kRecords;) {
    RingPlace behind;
    const RingRecord record = in.peek(at_next, behind);
    if (record.slot == nullptr) {
      CHECK(!in.is_broken());
      static_cast<void>(in.consume(at_next));
      static_cast<void>(in.tell());
      std::this_thread::yield();
      continue;
    }
    at_next = behind;
    const Lengths lengths = lengths_of(random);
    wrong += record.header_bytes != lengths.headers || record.rest_bytes() != lengths.rest ||
                     record.psns != static_cast<std::uint32_t>(i)
                 ? 1
                 : 0;
    for (std::uint32_t at = 0; at < lengths.headers; ++at) {
      wrong += record.headers[at] != (i & 0xff) ? 1 : 0;
    }
    for (std::uint32_t at = 0; at < lengths.rest; ++at) {
      wrong += record.rest[at] != (~i & 0xff) ? 1 : 0;
    }
    if (ahead.below(4) == 0) static_cast<void>(in.consume(at_next));
    if (i % 16 == 0) static_cast<void>(in.tell());
    ++i;
  }
  writer.join();
  CHECK_EQ(wrong, 0);
}

// Fills the ring with such records; returns how many.
std::uint64_t fill(RingWriter& out, std::uint32_t rest) {
  std::uint64_t written = 0;
  RingPlace behind;
  for (RingRecord record = out.begin(28, rest, behind); record.slot != nullptr;
       record = out.begin(28, rest, behind)) {
    out.publish(record, behind);
    ++written;
  }
  return written;
}

TEST("neighbour ring: a full ring takes nothing more until something is consumed") {
  for (const bool is_short : {true, false}) {
    const std::uint32_t rest = is_short ? 8 : 1000;
    Ring ring;
    RingWriter out(ring.shared());
    RingReader in(ring.shared());
    CHECK_EQ(fill(out, rest), is_short ? kSlots : kBodyBytes / 1024);
    CHECK(!out.has_room());
    RingPlace behind;
    CHECK_EQ(in.peek(in.place(), behind).rest_bytes(), rest);
    ring.shared().writer_waits.store(1);
    CHECK(in.consume(behind) || in.tell());  // Somebody waits for the room.
    CHECK(out.begin(28, rest, behind).slot != nullptr);
    if (!is_short) CHECK(out.begin(28, kMaxRecordBytes - 28, behind).slot == nullptr);
  }
}

TEST("neighbour ring: where there is room for several, there is for each of them") {
  Random random(softhca::testing::seed());
  Ring ring;
  RingWriter out(ring.shared());
  RingReader in(ring.shared());
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::uint64_t count = 1 + random.below(16);
    const auto most = static_cast<std::uint32_t>(1 + random.below(2000));
    if (!out.has_room(count, most)) {
      ++refused;
      RingPlace behind;
      while (in.peek(in.place(), behind).slot != nullptr) in.consume(behind);
      in.tell();
      out.look();
      CHECK(out.has_room(count, most));
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto bytes = static_cast<std::uint32_t>(random.below(most + 1));
      const auto headers = static_cast<std::uint32_t>(random.below(std::min(bytes, 64u) + 1));
      RingPlace behind;
      const RingRecord record = out.begin(headers, bytes - headers, behind);
      CHECK(record.slot != nullptr);
      std::memset(record.headers, 0, headers);
      std::memset(record.rest, 0, bytes - headers);
      out.publish(record, behind);
    }
  }
  CHECK(refused > 10);
}

TEST("neighbour ring: a writer that waits for room is told before the ring is empty") {
  for (const std::uint32_t rest : {8u, 1000u, kMaxRecordBytes - 28}) {
    Ring ring;
    RingWriter out(ring.shared());
    RingReader in(ring.shared());
    for (int lap = 0; lap < 5; ++lap) {
      const std::uint64_t written = fill(out, rest);
      CHECK(written > 0);
      ring.shared().writer_waits.store(1);
      std::uint64_t consumed = 0;
      bool told = false;
      RingPlace behind;
      while (in.peek(in.place(), behind).slot != nullptr) {
        told = in.consume(behind) || told;
        ++consumed;
      }
      CHECK_EQ(consumed, written);
      CHECK(told);
      out.look();
      CHECK(out.has_room());
    }
  }
}

TEST("neighbour ring: whatever is written into the memory, the reader stays inside it") {
  Random random(softhca::testing::seed());
  for (int round = 0; round < 200; ++round) {
    Ring ring;
    RingShared& shared = ring.shared();
    const auto* first = reinterpret_cast<const std::uint8_t*>(&shared);
    const auto* end = first + sizeof shared;
    for (SharedSlot& slot : shared.slots) {
      slot.word.store(static_cast<std::uint32_t>(random.below(7) | (random.below(3) << 8)));
      slot.bytes = static_cast<std::uint32_t>(random.next() >> random.below(64));
      slot.header_bytes = static_cast<std::uint16_t>(random.next() >> random.below(64));
    }
    RingReader in(shared);
    for (int taken = 0; taken < 100; ++taken) {
      RingPlace behind;
      const RingRecord record = in.peek(in.place(), behind);
      if (record.slot == nullptr) break;
      CHECK(record.headers >= first);
      CHECK(record.headers + record.header_bytes <= end);
      CHECK(record.rest >= first);
      CHECK(record.rest + record.rest_bytes() <= end);
      static_cast<void>(in.consume(behind));
    }
    RingWriter out(shared);
    for (int i = 0; i < 5000; ++i) {
      shared.consumed_slots.store(random.next() >> random.below(64));
      shared.consumed_bytes.store(random.next() >> random.below(64));
      RingPlace behind;
      const RingRecord record =
          out.begin(28, static_cast<std::uint32_t>(random.below(8000)), behind);
      if (record.slot == nullptr) continue;
      CHECK(record.rest >= first);
      CHECK(record.rest + record.rest_bytes() <= end);
      out.publish(record, behind);
    }
  }
}

TEST("neighbour segment: memory that its maker could shrink is not taken") {
  const int fd = memfd_create("not sealed", MFD_CLOEXEC);
  CHECK_EQ(ftruncate(fd, sizeof(SegmentLayout)), 0);
  SharedSegment segment;
  CHECK_EQ(segment.adopt(FileDescriptor(fd)), EINVAL);
}

}  // namespace
}  // namespace softhca
