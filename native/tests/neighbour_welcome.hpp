// A guest at a side that nobody drives.
#pragma once

#include <poll.h>

#include "tests/neighbour_guest.hpp"
#include "tests/neighbour_sides.hpp"

namespace softhca::testing::sides {

inline bool is_due(const Side& side) {
  pollfd ready{side.neighbours->ready_fd(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

inline void welcome(Side& host, Guest& guest) {
  guest.connect_to(host.gid());
  guest.greet();
  host.neighbours->serve();  // Lets it in.
  host.neighbours->serve();  // Hears it.
  CHECK(host.neighbours->is_inhabited());
}

}  // namespace softhca::testing::sides
