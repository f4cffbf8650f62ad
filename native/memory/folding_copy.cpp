#include "memory/folding_copy.hpp"

#include "memory/guarded_routines.hpp"

namespace softhca {

std::size_t guarded_copy_folding(void* to, const void* from, std::size_t steps, FoldLanes& lanes,
                                 const FoldFactors& factors) {
#if defined(__x86_64__)
  return softhca_fold(to, from, steps, &lanes, &factors) * FoldLanes::kBytes;
#else
  static_cast<void>(to), static_cast<void>(from), static_cast<void>(lanes);
  static_cast<void>(factors);
  return steps * FoldLanes::kBytes;
#endif
}

}  // namespace softhca
