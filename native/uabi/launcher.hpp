// Starts a program under the filter, and gets the descriptor on which the kernel asks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "uabi/filter.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

struct Launch {
  std::string path;  // Of the program; it is not searched for.
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<DescriptorRange> ours;
  std::string directory;  // To be removed when the caller has ended; none if it is empty.
  Doorbells doorbells = Doorbells::asked;
  // How many descriptors the program may have; 0: as many as the caller.
  std::uint64_t descriptor_limit = 0;
  // Who reads and writes the program's memory, if it is no ancestor: Yama wants to be told.
  pid_t tracer = 0;
};

// Both descriptors are the caller's to close. When the guardian's is closed, also by the caller's
// death, everything is killed that the program has started.
struct Launched {
  pid_t process = -1;
  pid_t guardian = -1;
  int guardian_socket = -1;  // Of GuardianReports.
  int listener = -1;
};

// Returns when the program runs, as far as its loader. EBUSY, if another listener is in the way;
// EOPNOTSUPP, if the kernel cannot do it; else the error of fork(2) or execve(2).
Result<Launched> launch(const Launch& launch);

}  // namespace softhca
