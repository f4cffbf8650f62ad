// Copies of user memory that sum as they go: the processor multiplies while it waits for memory.
#pragma once

#include <cstddef>

#include "vocabulary/fold_lanes.hpp"

namespace softhca {

// As guarded_copy(), of steps of FoldLanes::kBytes, which are folded into `lanes`. After a fault
// the lanes say nothing. Precondition: the CPU has AVX-512F and VPCLMULQDQ.
std::size_t guarded_copy_folding(void* to, const void* from, std::size_t steps, FoldLanes& lanes,
                                 const FoldFactors& factors);

}  // namespace softhca
