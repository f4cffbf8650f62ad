#include <sys/mman.h>

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

std::uint32_t length_of(Random& random) {
  return static_cast<std::uint32_t>(random.below(8) == 0 ? random.below(kMaxRecordBytes + 1)
                                                         : random.below(200));
}

TEST("neighbour ring: records of any length keep their order and bytes over many laps") {
  constexpr int kRecords = 40'000;
  Ring ring;
  std::thread writer([&] {
    RingWriter out(ring.shared());
    Random random(softhca::testing::seed());
    for (int i = 0; i < kRecords;) {
      const std::uint32_t bytes = length_of(random);
      RecordHead* record = nullptr;
      while ((record = out.begin(bytes)) == nullptr) std::this_thread::yield();
      std::memset(static_cast<void*>(record + 1), i & 0xff, bytes);
      out.publish(*record);
      ++i;
    }
  });
  RingReader in(ring.shared());
  Random random(softhca::testing::seed());
  int wrong = 0;
  for (int i = 0; i < kRecords;) {
    std::uint32_t bytes = 0;
    RecordHead* record = in.peek(bytes);
    if (record == nullptr) {
      CHECK(!in.is_broken());
      std::this_thread::yield();
      continue;
    }
    const auto* body = reinterpret_cast<const std::uint8_t*>(record + 1);
    wrong += bytes != length_of(random) ? 1 : 0;
    for (std::uint32_t at = 0; at < bytes; ++at) wrong += body[at] != (i & 0xff) ? 1 : 0;
    static_cast<void>(in.consume(bytes));
    ++i;
  }
  writer.join();
  CHECK_EQ(wrong, 0);
}

TEST("neighbour ring: a full ring takes nothing more until something is consumed") {
  Ring ring;
  RingWriter out(ring.shared());
  RingReader in(ring.shared());
  std::uint64_t written = 0;
  for (RecordHead* record = out.begin(1000); record != nullptr; record = out.begin(1000)) {
    out.publish(*record);
    ++written;
  }
  CHECK_EQ(written, (kRingBytes - kCellBytes) / 1024);
  std::uint32_t bytes = 0;
  CHECK(in.peek(bytes) != nullptr);
  CHECK_EQ(bytes, 1000u);
  ring.shared().writer_waits.store(1);
  CHECK(in.consume(bytes));  // Somebody waits for the room.
  CHECK(out.begin(1000) != nullptr);
  CHECK(out.begin(kMaxRecordBytes) == nullptr);
}

TEST("neighbour ring: whatever is written into the memory, the reader stays inside it") {
  Random random(softhca::testing::seed());
  for (int round = 0; round < 200; ++round) {
    Ring ring;
    auto* bytes = reinterpret_cast<std::uint8_t*>(&ring.shared());
    for (std::size_t at = 0; at < sizeof(RingShared); at += kCellBytes) {
      const std::uint64_t noise[2] = {random.below(7) | random.next() << 32, random.next()};
      std::memcpy(bytes + at, noise, sizeof noise);
    }
    RingReader in(ring.shared());
    for (int taken = 0; taken < 100; ++taken) {
      std::uint32_t length = 0;
      RecordHead* record = in.peek(length);
      if (record == nullptr) break;
      auto* begin = reinterpret_cast<std::uint8_t*>(record + 1);
      CHECK(begin >= ring.shared().cells);
      CHECK(begin + length <= ring.shared().cells + kRingBytes);
      static_cast<void>(in.consume(length));
    }
    RingWriter out(ring.shared());
    for (int i = 0; i < 5000; ++i) {
      ring.shared().consumed.store(random.next());
      RecordHead* record = out.begin(static_cast<std::uint32_t>(random.below(kMaxRecordBytes)));
      if (record != nullptr) out.publish(*record);
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
