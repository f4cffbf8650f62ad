// GB/s of each CRC-32 routine that this CPU has, and of zlib if it is installed.
// Build: g++ -std=c++20 -O2 -Inative bench/crc32.cpp native/wire/crc32*.cpp
//   native/vocabulary/emulator.cpp -ldl -o build/crc32
#include "wire/crc32.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "vocabulary/random.hpp"
#include "wire/crc32_routines.hpp"

namespace {

using softhca::ByteView;
using softhca::Crc32Routine;

// The shortest packet with its headers, a common path MTU, the largest path MTU, a bulk transfer.
constexpr std::array<std::size_t, 5> kSizes = {44, 256, 1024, 4096, 65536};

using ZlibCrc32 = unsigned long (*)(unsigned long, const unsigned char*, unsigned);
ZlibCrc32 zlib_crc32 = nullptr;

std::uint32_t run_zlib(std::uint32_t crc, ByteView bytes) {
  return static_cast<std::uint32_t>(
      zlib_crc32(crc, bytes.data(), static_cast<unsigned>(bytes.size())));
}

double seconds_of(const Crc32Routine& routine, ByteView bytes, std::size_t rounds) {
  const auto begin = std::chrono::steady_clock::now();
  std::uint32_t crc = 0;
  // Each round continues the last one's CRC, so none of them can be left out or overlapped.
  for (std::size_t round = 0; round < rounds; ++round) crc = routine.run(crc, bytes);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  volatile std::uint32_t kept = crc;
  (void)kept;
  return taken.count();
}

double gigabytes_per_second(const Crc32Routine& routine, ByteView bytes) {
  constexpr double kSeconds = 0.05;
  std::size_t rounds = 16;
  while (seconds_of(routine, bytes, rounds) < kSeconds) rounds *= 2;
  double best = kSeconds * 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    best = std::min(best, seconds_of(routine, bytes, rounds));
  }
  return static_cast<double>(rounds * bytes.size()) / best / 1e9;
}

}  // namespace

int main() {
  const auto listed = softhca::crc32_routines();
  std::vector<Crc32Routine> routines(listed.begin(), listed.end());
  if (void* zlib = dlopen("libz.so.1", RTLD_NOW)) {
    zlib_crc32 = reinterpret_cast<ZlibCrc32>(dlsym(zlib, "crc32"));
    if (zlib_crc32 != nullptr) routines.push_back({"zlib", run_zlib});
  }

  softhca::Random random(1);
  std::vector<std::uint8_t> bytes(kSizes.back());
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());

  std::printf("%-12s", "GB/s at");
  for (const std::size_t size : kSizes) std::printf("%8zu B", size);
  std::printf("\n");
  std::vector<double> at_4096;
  for (const Crc32Routine& routine : routines) {
    std::printf("%-12s", routine.name);
    for (const std::size_t size : kSizes) {
      const double rate = gigabytes_per_second(routine, ByteView(bytes).first(size));
      if (size == 4096) at_4096.push_back(rate);
      std::printf("%10.2f", rate);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  for (std::size_t i = 1; i < routines.size(); ++i) {
    std::printf("%s / %s at 4096 B: %.1f\n", softhca::crc32_routine(), routines[i].name,
                at_4096[0] / at_4096[i]);
  }
  return 0;
}
