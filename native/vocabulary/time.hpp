// Times are nanoseconds of a clock that never goes back.
#pragma once

#include <cstdint>

namespace softhca {

// A deadline that does not come.
inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

}  // namespace softhca
