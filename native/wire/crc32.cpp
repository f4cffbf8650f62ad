// Chooses the routine once, by what the CPU, or what plays it, says of itself.
#include "wire/crc32.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "vocabulary/emulator.hpp"
#include "wire/crc32_lanes.hpp"
#include "wire/crc32_routines.hpp"

namespace softhca {
namespace {

struct RoutineList {
  std::array<Crc32Routine, 4> routines{};
  std::size_t count = 0;

  void add(const Crc32Routine& routine) { routines[count++] = routine; }
};

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
  const std::size_t plain = list.count;
  list.add({"sparse", crc32_by_sparse_multiple});
  list.add({"table", crc32_by_table});
  const auto first = list.routines.begin();
  if (runs_in_emulator()) std::rotate(first, first + plain, first + plain + 1);
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
