// Keys, bounds, rights, and memory that goes away under us (IBTA Vol 1, 10.6).

#include "memory/memory_table.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "tests/check.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint32_t kPd = 7;
constexpr std::uint32_t kAll =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

struct Fixture {
  Random random{seed()};
  MemoryTable table{process_space(), random, 1000, ~std::uint64_t{0}};
  std::array<std::uint8_t, 256> bytes{};

  std::uint64_t at(std::size_t offset = 0) {
    return reinterpret_cast<std::uint64_t>(bytes.data()) + offset;
  }
  std::uint32_t reg(std::uint32_t access = kAll) {
    const auto key = table.register_region({kPd, at(), bytes.size(), at(), access});
    CHECK(key.ok());
    return key.value;
  }
  Reason read(std::uint32_t key, std::uint64_t address, std::uint64_t length,
              std::uint32_t pd = kPd) {
    return table.check_remote(pd, key, address, length, kAccessRemoteRead).reason;
  }
};

TEST("memory: remote write and atomic need local write") {
  Fixture f;
  for (const std::uint32_t access : {kAccessRemoteWrite, kAccessRemoteAtomic}) {
    CHECK_EQ(f.table.register_region({kPd, f.at(), 8, f.at(), access}).status.error, EINVAL);
  }
  CHECK(f.table.register_region({kPd, f.at(), 8, f.at(), kAccessRemoteRead | 1u << 20}).ok());
  CHECK_EQ(f.table.register_region({kPd, f.at(), 8, f.at(), 1u << 15}).status.error, EINVAL);
}

TEST("memory: bounds are exact and do not wrap") {
  Fixture f;
  const std::uint32_t key = f.reg();
  CHECK(f.read(key, f.at(), 256) == Reason::NONE);
  CHECK(f.read(key, f.at(255), 1) == Reason::NONE);
  CHECK(f.read(key, f.at(256), 0) == Reason::NONE);
  CHECK(f.read(key, f.at(256), 1) == Reason::OUT_OF_BOUNDS);
  CHECK(f.read(key, f.at() - 1, 1) == Reason::OUT_OF_BOUNDS);
  CHECK(f.read(key, f.at(1), 256) == Reason::OUT_OF_BOUNDS);
  CHECK(f.read(key, f.at(1), ~std::uint64_t{0}) == Reason::OUT_OF_BOUNDS);
  CHECK(f.read(key, ~std::uint64_t{0}, 2) == Reason::OUT_OF_BOUNDS);
  CHECK_EQ(f.table.register_region({kPd, ~std::uint64_t{0} - 3, 5, 0, 0}).status.error, EINVAL);
  CHECK_EQ(f.table.register_region({kPd, f.at(), 5, ~std::uint64_t{0} - 3, 0}).status.error,
           EINVAL);
}

TEST("memory: a region that is not yours, not allowed, or gone") {
  Fixture f;
  const std::uint32_t key = f.reg(kAccessLocalWrite);
  CHECK(f.read(key, f.at(), 1) == Reason::MISSING_RIGHT);
  const std::uint32_t open = f.reg();
  CHECK(f.read(open, f.at(), 1, kPd + 1) == Reason::OTHER_PD);
  CHECK(f.read(open ^ 1, f.at(), 1) == Reason::UNKNOWN_KEY);
  CHECK(f.table.deregister_region(open).ok());
  CHECK(f.read(open, f.at(), 1) == Reason::UNKNOWN_KEY);
  CHECK_EQ(f.table.deregister_region(open).error, EINVAL);
}

TEST("memory: a stale key never fits the region that took its place") {
  Fixture f;
  std::vector<std::uint32_t> dead;
  for (int round = 0; round < 500; ++round) {
    const std::uint32_t key = f.reg();
    for (std::size_t back = dead.size() > 15 ? dead.size() - 15 : 0; back < dead.size(); ++back) {
      CHECK(dead[back] != key);
      CHECK(f.read(dead[back], f.at(), 1) == Reason::UNKNOWN_KEY);
    }
    CHECK(f.table.deregister_region(key).ok());
    dead.push_back(key);
  }
}

TEST("memory: a key does not come back while somebody may still remember it") {
  Fixture f;
  std::unordered_set<std::uint32_t> seen;
  for (int round = 0; round < 100'000; ++round) {
    const std::uint32_t key = f.reg();
    CHECK(seen.insert(key).second);
    CHECK(f.table.deregister_region(key).ok());
  }
}

TEST("memory: a region that is moved has each of its 256 keys in turn") {
  Fixture f;
  const std::uint32_t handle = f.reg();
  std::unordered_set<std::uint32_t> seen{handle};
  for (std::uint32_t round = 1; round < 256; ++round) {
    const std::uint64_t place = f.at(round % 2);
    const auto key = f.table.reregister_region(handle, {kPd, place, 8, place, kAll});
    CHECK(key.ok());
    CHECK(seen.insert(key.value).second);
  }
}

TEST("memory: what is reported can be allocated, one more is refused") {
  Fixture f;
  for (int at = 0; at < 1000; ++at) {
    f.reg();
  }
  CHECK_EQ(f.table.register_region({kPd, f.at(), 8, f.at(), 0}).status.error, ENOMEM);
}

TEST("memory: no word is exchanged that is none in memory, whatever the key calls it") {
  Fixture f;
  alignas(64) std::array<std::uint8_t, 128> memory{};
  for (std::uint64_t first : {0, 1, 4, 60}) {
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(memory.data()) + first;
    const auto key = f.table.register_region({kPd, at, 64, 0, kAll});
    CHECK(key.ok());
    std::uint64_t original = 0;
    const Reason expected = first == 0 ? Reason::NONE : Reason::MISALIGNED;
    CHECK(f.table.fetch_add(kPd, key.value, 0, 1, original).reason == expected);
    CHECK(f.table.compare_swap(kPd, key.value, 8, 0, 1, original).reason == expected);
    CHECK(f.table.atomic_write(kPd, key.value, 16, 1, original).reason == expected);
  }
  CHECK_EQ(std::ranges::count(memory, 0), 125);
}

TEST("memory: scatter and gather cross entries and check every key") {
  Fixture f;
  const std::uint32_t key = f.reg();
  const std::array<Sge, 4> list{
      {{f.at(0), 3, key}, {0, 0, 0}, {f.at(10), 5, key}, {f.at(20), 2, key}}};
  const std::array<std::uint8_t, 6> in{1, 2, 3, 4, 5, 6};
  CHECK(f.table.scatter(kPd, list, 2, in).ok());
  CHECK_EQ(f.bytes[2], 1);
  CHECK_EQ(f.bytes[10], 2);
  CHECK_EQ(f.bytes[14], 6);
  CHECK_EQ(f.bytes[20], 0);
  std::array<std::uint8_t, 6> out{};
  CHECK(f.table.gather(kPd, list, 2, out).ok());
  CHECK(in == out);
  const std::uint32_t read_only = f.reg(kAccessRemoteRead);
  const std::array<Sge, 1> refused{{{f.at(), 8, read_only}}};
  CHECK(f.table.scatter(kPd, refused, 0, in).reason == Reason::MISSING_RIGHT);
  CHECK(f.table.gather(kPd, refused, 0, out).ok());
}

TEST("memory: unmapped, truncated and write-protected memory is a status, not a signal") {
  Fixture f;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const int file = memfd_create("truncated", 0);
  CHECK(file >= 0);
  CHECK_EQ(ftruncate(file, static_cast<off_t>(page)), 0);
  void* mapped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(mapped != MAP_FAILED);
  const auto at = reinterpret_cast<std::uint64_t>(mapped);
  const std::uint32_t key = f.table.register_region({kPd, at, page, at, kAll}).value;
  std::array<std::uint8_t, 64> buffer{};
  std::uint64_t original = 0;
  CHECK(f.table.write_remote(kPd, key, at, buffer).ok());
  CHECK(f.table.fetch_add(kPd, key, at, 1, original).ok());

  CHECK_EQ(mprotect(mapped, page, PROT_READ), 0);
  CHECK(f.table.write_remote(kPd, key, at, buffer).reason == Reason::MEMORY_GONE);
  CHECK(f.table.read_remote(kPd, key, at, buffer).ok());
  CHECK(f.table.fetch_add(kPd, key, at, 1, original).reason == Reason::MEMORY_GONE);

  CHECK_EQ(ftruncate(file, 0), 0);
  CHECK(f.table.read_remote(kPd, key, at, buffer).reason == Reason::MEMORY_GONE);

  CHECK_EQ(munmap(mapped, page), 0);
  CHECK(f.table.read_remote(kPd, key, at, buffer).reason == Reason::MEMORY_GONE);
  CHECK(f.table.compare_swap(kPd, key, at, 0, 1, original).reason == Reason::MEMORY_GONE);
  close(file);
}

}  // namespace
}  // namespace softhca::testing
