// Doorbells that are written to a file: each is seen, whoever writes and however many.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/check.hpp"
#include "tests/rounds.hpp"
#include "uabi/doorbell_record.hpp"
#include "uabi/doorbell_watch.hpp"

namespace softhca::testing {
namespace {

// What a program has: a description of its own, which begins where doorbells do.
class ProgramFile {
 public:
  explicit ProgramFile(const RingFile& file) {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", file.fd());
    fd_.reset(open(path, O_RDWR | O_CLOEXEC));
    CHECK(fd_.is_open());
    CHECK(lseek(fd_.get(), static_cast<off_t>(RingFile::kDoorbellsAt), SEEK_SET) >= 0);
  }
  void ring(std::uint32_t handle, std::uint32_t command = 28, std::uint32_t last = 128) const {
    const std::array<std::uint32_t, 8> words = {command, 0, 0, 0, handle, 0, 0, last};
    CHECK_EQ(write(fd_.get(), words.data(), sizeof words), 32);
  }
  int fd() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
};

void wait_until(const std::atomic<std::uint64_t>& value, std::uint64_t wanted) {
  for (std::uint64_t seen = value.load(); seen < wanted; seen = value.load()) {
    value.wait(seen);
  }
}

// Counts what was rung; where it is known how many are to come, it can be waited for.
struct Bell {
  std::atomic<std::uint64_t> rung{0};
  int ring() {
    rung.fetch_add(1);
    rung.notify_all();
    return 0;
  }
};

TEST("uabi doorbells: a file has room for the doorbells and the queues of years") {
  constexpr std::uint64_t kDoorbells = std::uint64_t{1} << 50;  // A million a second.
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 26;
  constexpr int kQueues = 1 << 20;
  const auto file = RingFile::make().value;
  const ProgramFile program(*file);
  CHECK(lseek(program.fd(), static_cast<off_t>(32 * kDoorbells), SEEK_CUR) >= 0);
  program.ring(1);
  for (int made = 0; made < kQueues; ++made) CHECK(file->allocate(kLargest).ok());
}

TEST("uabi doorbells: each is rung, of the queue pair that it names, with and without spinning") {
  for (const std::uint64_t most_ns : {0, 50'000}) {
    DoorbellTable table;
    DoorbellWatch watch(table, most_ns);
    CHECK(watch.start().ok());
    const auto file = RingFile::make().value;
    const auto other = RingFile::make().value;
    std::array<Bell, 3> bells;
    table.add(file->inode(), 5, [&] { return bells[0].ring(); });
    table.add(file->inode(), 6, [&] { return bells[1].ring(); });
    table.add(other->inode(), 5, [&] { return bells[2].ring(); });
    CHECK(watch.add(file).ok() && watch.add(other).ok());
    const ProgramFile program(*file);
    const ProgramFile second(*other);
    for (std::uint64_t round = 1; round <= 200; ++round) {
      program.ring(5);
      program.ring(77);     // Nobody's.
      program.ring(5, 30);  // No doorbell.
      program.ring(6);
      second.ring(5);
      if (round % 50 == 0) {
        for (const Bell& bell : bells) wait_until(bell.rung, round);
      }
    }
    watch.stop();
    for (const Bell& bell : bells) CHECK_EQ(bell.rung.load(), 200u);
  }
}

TEST("uabi doorbells: of many threads that share a description, past the end of windows") {
  DoorbellTable table;
  DoorbellWatch watch(table, 0);
  CHECK(watch.start().ok());
  const auto file = RingFile::make().value;
  Bell bell;
  table.add(file->inode(), 1, [&] { return bell.ring(); });
  CHECK(watch.add(file).ok());
  const ProgramFile program(*file);
  const std::uint64_t each = rounds(40000);  // A window has 32,768.
  std::thread beside([&] {
    for (std::uint64_t at = 0; at < each; ++at) program.ring(1);
  });
  for (std::uint64_t at = 0; at < each; ++at) program.ring(1);
  beside.join();
  wait_until(bell.rung, 2 * each);
  watch.stop();
  CHECK_EQ(bell.rung.load(), 2 * each);
  // What was rung takes no memory, but for the window that is being written.
  struct stat status {};
  CHECK_EQ(fstat(file->fd(), &status), 0);
  CHECK(status.st_blocks * 512 <= 2 << 20);
}

// A record as another processor sees it: words of which the writer's stores have not arrived are 0,
// until it is waited for.
struct Seen {
  std::array<std::uint32_t, 8> words{};
  std::uint32_t arrived = 0;  // A bit for each.
  int waits = 0;

  SeenDoorbell look() {
    return look_at_doorbell(
        [this](std::size_t at, std::uint32_t& value) {
          value = (arrived >> at / 4 & 1) != 0 ? words[at / 4] : 0;
          return true;
        },
        [this] {
          arrived = 0xff;
          ++waits;
        });
  }
};

TEST("uabi doorbells: in whatever order the words of a record arrive, it is rung once and right") {
  using enum SeenDoorbell::Kind;
  for (std::uint32_t arrived = 0; arrived < 0x100; ++arrived) {
    Seen bell{{kPostSend, 9, 0, 0, 5, 0, 0, 128}, arrived};
    const SeenDoorbell seen = bell.look();
    const bool has_last = (arrived & 0x80) != 0;
    CHECK_EQ(seen.kind, has_last ? doorbell : none);
    if (has_last) CHECK_EQ(seen.handle, 5u);
    // Only what may be missing is waited for.
    CHECK_EQ(bell.waits, has_last && (arrived & 0x11) != 0x11 ? 1 : 0);
    Seen command{{30, 9, 0, 0, 5, 0, 0, 128}, arrived};
    CHECK_EQ(command.look().kind, has_last || (arrived & 1) != 0 ? other : none);
  }
}

TEST("uabi doorbells: who waits for the writer of a file sees what was written") {
  const auto file = RingFile::make().value;
  file->wait_for_writer();
  const ProgramFile program(*file);
  program.ring(1);
  file->wait_for_writer();
  program.ring(1);
  struct stat status {};
  CHECK_EQ(fstat(file->fd(), &status), 0);
  CHECK_EQ(lseek(program.fd(), 0, SEEK_CUR),
           static_cast<off_t>(RingFile::kDoorbellsAt + 2 * kDoorbellBytes));
}

TEST("uabi doorbells: a command of their length that ends in zeros holds back none behind it") {
  DoorbellTable table;
  DoorbellWatch watch(table, 0);
  CHECK(watch.start().ok());
  const auto file = RingFile::make().value;
  Bell bell;
  table.add(file->inode(), 1, [&] { return bell.ring(); });
  CHECK(watch.add(file).ok());
  const ProgramFile program(*file);
  program.ring(1, 30, 0);
  program.ring(1, 31, 0);
  program.ring(1);
  watch.ring_written(file->inode());
  CHECK_EQ(bell.rung.load(), 1u);
}

TEST("uabi doorbells: what was written is rung at once for who asks, and once in all") {
  DoorbellTable table;
  DoorbellWatch watch(table, 0);
  CHECK(watch.start().ok());
  const auto first = RingFile::make().value;
  const auto second = RingFile::make().value;
  std::atomic<std::uint64_t> held{0};
  std::atomic<std::uint64_t> go_on{0};
  table.add(first->inode(), 1, [&] {
    held.store(1);
    held.notify_all();
    wait_until(go_on, 1);
    return 0;
  });
  Bell bell;
  table.add(second->inode(), 1, [&] { return bell.ring(); });
  CHECK(watch.add(first).ok() && watch.add(second).ok());
  const ProgramFile holding(*first);
  const ProgramFile program(*second);
  holding.ring(1);
  wait_until(held, 1);  // The thread looks at nothing meanwhile.
  for (std::uint64_t at = 1; at <= 100; ++at) {
    program.ring(1);
    program.ring(1);
    watch.ring_written(second->inode());
    CHECK_EQ(bell.rung.load(), 2 * at);
  }
  watch.ring_written(77);  // Nobody's.
  go_on.store(1);
  go_on.notify_all();
  watch.stop();
  CHECK_EQ(bell.rung.load(), 200u);
  program.ring(1);
  watch.ring_written(second->inode());
  CHECK_EQ(bell.rung.load(), 201u);
}

TEST("uabi doorbells: a program that moves its position and writes anything loses only its own") {
  DoorbellTable table;
  DoorbellWatch watch(table, 0);
  CHECK(watch.start().ok());
  const auto hostile = RingFile::make().value;
  const auto honest = RingFile::make().value;
  Bell bell;
  table.add(honest->inode(), 1, [&] { return bell.ring(); });
  CHECK(watch.add(hostile).ok() && watch.add(honest).ok());
  const ProgramFile bad(*hostile);
  const ProgramFile good(*honest);
  std::array<std::uint8_t, 100> junk;
  for (std::uint64_t round = 1; round <= 300; ++round) {
    junk.fill(static_cast<std::uint8_t>(round));
    const auto at = static_cast<off_t>(RingFile::kDoorbellsAt + round * 977 % 5000);
    CHECK_EQ(pwrite(bad.fd(), junk.data(), junk.size(), at), 100);
    CHECK(lseek(bad.fd(), at, SEEK_SET) >= 0);
    bad.ring(1);
    CHECK(ftruncate(bad.fd(), 0) != 0);
    good.ring(1);
    if (round == 150) watch.remove(hostile->inode());
  }
  wait_until(bell.rung, 300);
  watch.stop();
}

}  // namespace
}  // namespace softhca::testing
