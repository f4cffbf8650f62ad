#include "wire/syndrome.hpp"

namespace softhca {
namespace {

// IBTA Vol 1, table 45, in the table's own step of 10 us.
constexpr std::uint32_t kRnrDelay10us[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                             16,    24,   32,   48,    64,    96,    128,   192,
                                             256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                             4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

}  // namespace

std::uint64_t rnr_delay_ns(std::uint8_t timer_code) {
  return std::uint64_t{kRnrDelay10us[timer_code & 0x1f]} * 10'000;
}

}  // namespace softhca
