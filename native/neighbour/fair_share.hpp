// What all neighbours together may take of what a process has: its descriptors. The rest is the
// program's.
#pragma once

namespace softhca {

// Whether there are enough left beside this descriptor. The lowest free number is given, so that it
// tells how many there are.
bool leaves_descriptors(int fd);

}  // namespace softhca
