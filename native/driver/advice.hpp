// Advice to the kernel about memory that is about to be registered (madvise(2)).
#pragma once

#include <cstdint>

#include "vocabulary/status.hpp"

namespace softhca {

// Advises about the pages of a range: all that it touches for advice that only brings pages in, and
// those that lie wholly in it for advice that would change what neighbours see. EINVAL for advice
// that loses content or is none; else the kernel's errno.
Status advise_memory(std::uint64_t address, std::uint64_t length, std::uint32_t advice);

}  // namespace softhca
