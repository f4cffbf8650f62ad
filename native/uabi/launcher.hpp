// Starts a program under the filter, and gets the descriptor on which the kernel asks.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "uabi/filter.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

struct Launch {
  std::string path;  // Of the program; it is not searched for.
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  DescriptorRange ours;
};

struct Launched {
  pid_t process = -1;
  int listener = -1;  // The caller's to close.
};

// Returns when the program runs, as far as its loader. It is killed when the calling *thread* ends.
// EBUSY, if another listener is in the way; EOPNOTSUPP, if the kernel cannot do it; else the error
// of fork(2) or execve(2).
Result<Launched> launch(const Launch& launch);

}  // namespace softhca
