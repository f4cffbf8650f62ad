// CRC-32 of bytes that somebody else folds into lanes while he copies them.
#pragma once

#include <cstdint>

#include "vocabulary/fold_lanes.hpp"

namespace softhca {

// The factors of a step of FoldLanes::kBytes. Null: this CPU is better off summing by itself what
// has been copied.
const FoldFactors* crc32_fold_factors();

// Continues `crc`, in crc32()'s convention.
void begin_lanes(FoldLanes& lanes, std::uint32_t crc);
// After one step or more. Precondition: there are factors.
std::uint32_t crc32_of_lanes(const FoldLanes& lanes);

}  // namespace softhca
