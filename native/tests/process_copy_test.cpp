// Copies by the kernel: what they move, where they end, and that the last bytes go by themselves.

#include "memory/process_copy.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <vector>

#include "link/file_descriptor.hpp"
#include "memory/foreign_memory.hpp"
#include "tests/check.hpp"

namespace softhca::testing {
namespace {

std::uint64_t address_of(const std::uint8_t* at) { return reinterpret_cast<std::uintptr_t>(at); }

std::vector<std::uint8_t> numbered(std::size_t bytes) {
  std::vector<std::uint8_t> all(bytes);
  std::iota(all.begin(), all.end(), std::uint8_t{1});
  return all;
}

FileDescriptor own_memory() { return FileDescriptor(open("/proc/self/mem", O_RDWR | O_CLOEXEC)); }

TEST("process copy: the last word of a range is a part of its own") {
  for (const std::size_t bytes : {1u, 7u, 8u}) {
    const WatchedParts all(4096, bytes);
    CHECK_EQ(all.count, 1u);
    CHECK_EQ(all.parts[0].iov_len, bytes);
  }
  for (const std::size_t bytes : {9u, 64u, 4097u}) {
    const WatchedParts all(4096, bytes);
    CHECK_EQ(all.count, 2u);
    CHECK_EQ(all.parts[0].iov_len, bytes - 8);
    CHECK_EQ(all.parts[1].iov_len, 8u);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(all.parts[1].iov_base), 4096 + bytes - 8);
  }
}

TEST("process copy: every length is moved, by number and by file, and nothing beside it") {
  const auto file = own_memory();
  const auto from = numbered(64);
  for (std::size_t size = 1; size < 40; ++size) {
    const auto check = [&](auto copy) {
      std::vector<std::uint8_t> to(64, 0);
      CHECK_EQ(copy(to), static_cast<ssize_t>(size));
      CHECK(std::equal(to.begin() + 3, to.begin() + 3 + static_cast<long>(size), from.begin()));
      CHECK_EQ(to[2], 0u);
      CHECK_EQ(to[3 + size], 0u);
    };
    const auto part = [&](std::vector<std::uint8_t>& to) { return ByteSpan(to).subspan(3, size); };
    check([&](auto& to) {
      const ProcessRead read{address_of(from.data()), part(to)};
      const bool whole = read_process(getpid(), std::span(&read, 1)) == 1;
      return whole ? static_cast<ssize_t>(size) : -1;
    });
    check(
        [&](auto& to) { return read_memory_file(file.get(), address_of(from.data()), part(to)); });
    check([&](auto& to) {
      return write_memory_file(file.get(), address_of(to.data() + 3), ByteView(from).first(size));
    });
    check([&](auto& to) {
      const auto bytes = const_cast<std::uint8_t*>(from.data());
      const std::array<iovec, 2> pieces{iovec{bytes, size / 2},
                                        iovec{bytes + size / 2, size - size / 2}};
      return write_process(getpid(), address_of(to.data() + 3), pieces, size);
    });
  }
}

TEST("process copy: ranges are read in one call, up to the first that is not there") {
  if (kMostReads < 4) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* all = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto source = static_cast<std::uint8_t*>(all);
  std::iota(source, source + page, std::uint8_t{1});
  munmap(source + page, page);
  constexpr std::size_t kEach = 100;
  const std::array<const std::uint8_t*, 4> from = {source, source + 50, source + page - kEach / 2,
                                                   source + 200};
  std::array<std::vector<std::uint8_t>, 4> to;
  std::array<ProcessRead, 4> reads;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    to[i].assign(kEach, 0);
    reads[i] = {address_of(from[i]), to[i]};
  }
  CHECK_EQ(read_process(getpid(), reads), 2u);
  for (std::size_t i = 0; i < 2; ++i) CHECK(std::equal(to[i].begin(), to[i].end(), from[i]));
  CHECK(std::all_of(to[3].begin(), to[3].end(), [](std::uint8_t byte) { return byte == 0; }));
  munmap(source, page);
}

TEST("foreign memory: what runs into nothing is refused, whatever its length and way") {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t room = std::max<std::size_t>(2 * page, 2 * kLongForeignBytes);
  void* all =
      mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto end = static_cast<std::uint8_t*>(all) + room;
  munmap(end, page);
  const auto file = own_memory();
  std::vector<std::uint8_t> ours(room, 5);
  for (const pid_t process : {pid_t{0}, getpid()}) {
    const ForeignMemory memory{process, file.get(), -1, next_foreign_number(), {}};
    for (const std::size_t there : {std::size_t{1}, std::size_t{30}, kLongForeignBytes}) {
      for (const std::size_t beyond : {0u, 1u, 8u, 20u}) {
        const ByteSpan part = ByteSpan(ours).first(there + beyond);
        const std::uint64_t at = address_of(end - there);
        CHECK_EQ(write_foreign(memory, at, part), beyond == 0);
        CHECK_EQ(read_foreign(memory, at, part), beyond == 0);
        CHECK_EQ(read_foreign(memory, at, part, ReadInto::WATCHED), beyond == 0);
      }
    }
  }
  munmap(all, room);
}

}  // namespace
}  // namespace softhca::testing
