// Advice to the kernel about memory that is about to be registered (madvise(2)).
#pragma once

#include <cstdint>

#include "memory/gone_ranges.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// The pages of a range that advice is given for: all that it touches for advice that only brings
// pages in, and those that lie wholly in it for advice that would change what neighbours see.
// EINVAL for advice that loses content or is none.
Result<AddressRange> advised_pages(const AddressRange& range, std::uint32_t advice,
                                   std::uint64_t page_bytes);

// Advises about them; the kernel's errno, if it refuses.
Status advise_memory(std::uint64_t address, std::uint64_t length, std::uint32_t advice);

}  // namespace softhca
