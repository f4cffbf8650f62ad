#include "vocabulary/emulator.hpp"

#if defined(__x86_64__)
#include <cpuid.h>

#include <array>
#include <cstdint>
#include <cstring>
#endif

namespace softhca {

bool runs_in_emulator() {
#if defined(__x86_64__)
  std::uint32_t flags = 0;
  std::uint32_t unused = 0;
  __cpuid(1, unused, unused, flags, unused);
  constexpr std::uint32_t kHypervisor = 1U << 31;
  if ((flags & kHypervisor) == 0) return false;
  std::array<std::uint32_t, 3> name{};
  __cpuid(0x4000'0000, unused, name[0], name[1], name[2]);
  return std::memcmp(name.data(), "TCGTCGTCGTCG", sizeof name) == 0;
#else
  return false;
#endif
}

}  // namespace softhca
