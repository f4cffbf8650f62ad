// Tells a process from the child that it forked.
#pragma once

#include <cstdint>

namespace softhca {

// Grows by one in every child of fork(): what was made under another number belongs to the parent.
// Costs one load; takes no lock.
std::uint64_t fork_generation();

}  // namespace softhca
