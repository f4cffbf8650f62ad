// Loads and stores of user memory that survive its disappearance: SIGSEGV and SIGBUS raised by
// exactly these routines become a return value; any other fault goes to whoever handled it before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {

// Must have been called once before the routines below; cheap to repeat. Repeating it takes the
// handlers back when somebody else has replaced them since.
void install_fault_guard();
// For who forks: meanwhile nobody is installing it. In the child nobody would ever be done.
void hold_fault_guard();
void let_go_of_fault_guard();

// Bytes that were not copied; 0 is success.
std::size_t guarded_copy(void* to, const void* from, std::size_t size);
// False on a fault. Loads acquire and stores release.
bool guarded_load(const std::uint32_t* at, std::uint32_t* value);
bool guarded_store(std::uint32_t* at, std::uint32_t value);
bool guarded_fetch_add(void* at, std::uint64_t addend, std::uint64_t* original);
bool guarded_compare_swap(void* at, std::uint64_t compare, std::uint64_t swap,
                          std::uint64_t* original);

}  // namespace softhca
