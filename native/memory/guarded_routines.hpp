// The routines that may fault, one file for each architecture, and where each may.
//
// A fault between `begin` and `end` of a row ends the routine at `resume`; any other is not ours.
// The routines are assembly, since a compiler is free to move or to repeat an access.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
// Bytes that were not copied, rounded up to what is copied at a time.
std::size_t softhca_copy(void* to, const void* from, std::size_t size);
// The others return 0 after a fault, else 1.
int softhca_load(const std::uint32_t* at, std::uint32_t* value);
int softhca_store(std::uint32_t* at, std::uint32_t value);
int softhca_xadd(void* at, std::uint64_t addend, std::uint64_t* original);
// Faults where the memory may not be written, whether it is equal or not.
int softhca_cmpxchg(void* at, std::uint64_t compare, std::uint64_t swap, std::uint64_t* original);
#if defined(__x86_64__)
// A copy of more bytes is one instruction.
extern std::size_t softhca_string_bytes;
// Copies steps of 256 bytes, and folds them into lanes (memory/folding_copy.hpp). How many steps
// were not copied.
std::size_t softhca_fold(void* to, const void* from, std::size_t steps, void* lanes,
                         const void* factors);
#endif

struct SofthcaGuard {
  const char* begin;
  const char* end;
  const char* resume;
};
extern const SofthcaGuard softhca_guards[];
extern const std::size_t softhca_guard_count;
}
