// What all neighbours together may take of what a process has: its descriptors, and the addresses
// at which it can map something. The rest is the program's.
#pragma once

#include <cstdint>

namespace softhca {

// Whether there are enough left beside this descriptor. The lowest free number is given, so that it
// tells how many there are.
bool leaves_descriptors(int fd);

// False: so many bytes of addresses are not to be had.
bool take_addresses(std::uint64_t bytes);
void give_addresses_back(std::uint64_t bytes);

}  // namespace softhca
