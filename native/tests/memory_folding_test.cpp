// The copy that sums as it goes: what it moves, what it sums, and where it faults.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "memory/folding_copy.hpp"
#include "memory/guarded_access.hpp"
#include "tests/check.hpp"
#include "vocabulary/random.hpp"
#include "wire/crc32.hpp"
#include "wire/crc32_lanes.hpp"

namespace softhca::testing {
namespace {

constexpr std::size_t kStep = FoldLanes::kBytes;

// Null where this processor has no such routine: then there is nothing to test.
const FoldFactors* factors() {
  install_fault_guard();
  return crc32_fold_factors();
}

TEST("folding copy: moves what it sums, from any place to any place, and nothing beside it") {
  if (factors() == nullptr) return;
  Random random(seed());
  std::vector<std::uint8_t> from(17 * kStep + 64);
  for (std::uint8_t& byte : from) byte = static_cast<std::uint8_t>(random.next());
  for (std::size_t steps = 1; steps <= 17; ++steps) {
    for (int round = 0; round < 20; ++round) {
      const std::size_t source = random.below(64);
      const std::size_t place = random.below(64);
      const std::size_t bytes = steps * kStep;
      const auto crc = static_cast<std::uint32_t>(random.next());
      std::vector<std::uint8_t> to(bytes + 128, 0xee);
      FoldLanes lanes;
      begin_lanes(lanes, crc);
      CHECK_EQ(
          guarded_copy_folding(to.data() + place, from.data() + source, steps, lanes, *factors()),
          0u);
      const ByteView moved(to.data() + place, bytes);
      CHECK(std::memcmp(moved.data(), from.data() + source, bytes) == 0);
      CHECK_EQ(crc32_of_lanes(lanes), crc32_by_table(crc, moved));
      CHECK_EQ(std::count(to.begin(), to.begin() + static_cast<long>(place), 0xee),
               static_cast<long>(place));
      CHECK(std::all_of(to.begin() + static_cast<long>(place + bytes), to.end(),
                        [](std::uint8_t byte) { return byte == 0xee; }));
    }
  }
}

TEST("folding copy: who runs into nothing is told how much is missing") {
  if (factors() == nullptr) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const all =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(all != MAP_FAILED);
  auto* const end = static_cast<std::uint8_t*>(all) + page;
  CHECK_EQ(mprotect(end, page, PROT_NONE), 0);
  std::vector<std::uint8_t> to(8 * kStep);
  for (std::size_t there = 0; there < 4 * kStep; there += 64) {
    FoldLanes lanes;
    begin_lanes(lanes, 0);
    const std::size_t whole = there / kStep;
    CHECK_EQ(guarded_copy_folding(to.data(), end - there, 5, lanes, *factors()),
             (5 - whole) * kStep);
    CHECK_EQ(guarded_copy_folding(to.data(), end - whole * kStep, whole, lanes, *factors()), 0u);
  }
  munmap(all, 2 * page);
}

}  // namespace
}  // namespace softhca::testing
