// A memory barrier in all processes that take part, asked for by the one that is about to sleep
// (membarrier(2), the global expedited command). With it who writes needs none of its own: a fence
// behind each record waits until the other processor has given up its copy of the line.
#pragma once

namespace softhca {

// Has this process take part from now on. The first time may take milliseconds. False: the kernel
// cannot do it.
bool join_barriers();
// Whoever takes part has passed a barrier when this returns. False: nobody has.
bool barrier_for_all();

}  // namespace softhca
