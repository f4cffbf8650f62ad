// Closes files that strangers have opened, and sockets through which they may have handed over
// some. Who closes a file last may have to wait for as long as who opened it likes: TCP sockets
// linger, and a file system may be a program. So a thread does it that has nothing else to do,
// wherever it is not certain that nothing is waited for.
#pragma once

#include <cstdint>

#include "link/file_descriptor.hpp"

namespace softhca {

// True: it was one of those that neighbours hand over, and is closed.
bool close_strangers_file(FileDescriptor file);
// Of a local socket; nobody speaks through it any more.
void close_strangers_socket(FileDescriptor socket);

// So many wait for their turn that nobody else should be let in.
bool closing_is_behind();
// The eventfd of `who`, a number of its own, is rung once when that is over. False: it is over, or
// there is no descriptor left.
bool ring_when_closed(std::uint64_t who, int bell);

}  // namespace softhca
