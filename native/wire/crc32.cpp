// Chooses the routine once, by what the CPU, or what plays it, says of itself.
#include "wire/crc32.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "wire/crc32_lanes.hpp"
#include "wire/crc32_routines.hpp"

namespace softhca {
namespace {

struct RoutineList {
  std::array<Crc32Routine, 3> routines{};
  std::size_t count = 0;

  void add(const Crc32Routine& routine) { routines[count++] = routine; }
};

#if defined(__x86_64__)
// QEMU's emulator without hardware below it has the instructions too, but does them bit by bit, at
// a third of the speed of the tables. It names itself where hypervisors do.
bool is_slow_emulator() {
  std::uint32_t highest = 0;
  std::array<std::uint32_t, 3> name{};
  std::uint32_t flags = 0;
  std::uint32_t unused = 0;
  __cpuid(1, unused, unused, flags, unused);
  constexpr std::uint32_t kHypervisor = 1U << 31;
  if ((flags & kHypervisor) == 0) return false;
  __cpuid(0x4000'0000, highest, name[0], name[1], name[2]);
  return std::memcmp(name.data(), "TCGTCGTCGTCG", sizeof name) == 0;
}
#endif

RoutineList find_routines() {
  RoutineList list;
#if defined(__x86_64__)
  // The builtin also asks whether the operating system saves the wide registers.
  __builtin_cpu_init();
  const bool has_pclmulqdq = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  if (has_pclmulqdq && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
    list.add({"vpclmulqdq", crc32_by_vpclmulqdq, &vpclmulqdq_factors, of_lanes_by_vpclmulqdq});
  }
  if (has_pclmulqdq) list.add({"pclmulqdq", crc32_by_pclmulqdq});
#elif defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0) list.add({"armv8-crc", crc32_by_armv8});
#endif
  list.add({"table", crc32_by_table});
#if defined(__x86_64__)
  const auto first = list.routines.begin();
  if (is_slow_emulator()) std::rotate(first, first + list.count - 1, first + list.count);
#endif
  return list;
}

std::uint32_t choose_and_run(std::uint32_t crc, ByteView bytes);

// Constant-initialised, so that a CRC taken before main() or in any thread finds it; whoever calls
// first replaces it, and two who do so at once store the same.
std::atomic<decltype(Crc32Routine::run)> chosen{choose_and_run};

std::uint32_t choose_and_run(std::uint32_t crc, ByteView bytes) {
  const auto run = crc32_routines().front().run;
  chosen.store(run, std::memory_order_relaxed);
  return run(crc, bytes);
}

}  // namespace

std::span<const Crc32Routine> crc32_routines() {
  static const RoutineList list = find_routines();
  return std::span(list.routines).first(list.count);
}

const char* crc32_routine() { return crc32_routines().front().name; }

std::uint32_t crc32(std::uint32_t crc, ByteView bytes) {
  return chosen.load(std::memory_order_relaxed)(crc, bytes);
}

const FoldFactors* crc32_fold_factors() { return crc32_routines().front().factors; }

void begin_lanes(FoldLanes& lanes, std::uint32_t crc) {
  lanes = {};
  const std::uint32_t state = ~crc;
  std::memcpy(lanes.bytes, &state, sizeof state);
}

std::uint32_t crc32_of_lanes(const FoldLanes& lanes) {
  return crc32_routines().front().of_lanes(lanes);
}

}  // namespace softhca
