#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__linux__)

#include <iterator>

#include "memory/guarded_labels.hpp"
#include "memory/guarded_routines.hpp"

#define SOFTHCA_DECLARE(name)                  \
  extern const char softhca_##name##_fault[];  \
  extern const char softhca_##name##_behind[]; \
  extern const char softhca_##name##_resume[];
#define SOFTHCA_ROW(name) \
  {softhca_##name##_fault, softhca_##name##_behind, softhca_##name##_resume},

extern "C" {
SOFTHCA_FOR_EACH_GUARD(SOFTHCA_DECLARE)
SOFTHCA_FOR_EACH_OTHER_GUARD(SOFTHCA_DECLARE)

const SofthcaGuard softhca_guards[] = {SOFTHCA_FOR_EACH_GUARD(SOFTHCA_ROW)
                                           SOFTHCA_FOR_EACH_OTHER_GUARD(SOFTHCA_ROW)};
const std::size_t softhca_guard_count = std::size(softhca_guards);
}

#endif
