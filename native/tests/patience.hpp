// Long enough for a loaded machine; only a failure waits for it.
#pragma once

#include <cstdint>

namespace softhca::testing {

inline constexpr int kPatienceMs = 20'000;
inline constexpr std::uint64_t kPatienceNs = kPatienceMs * UINT64_C(1'000'000);

}  // namespace softhca::testing
