// A small process between a supervisor and a program: when the supervisor ends, however it ends,
// the guardian ends everything that the program has started, and removes what the supervisor left.
//
// It is a fork of a process with threads, and never executes anything: system calls are all that it
// may use.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace softhca {

// What a guardian says to its supervisor.
struct GuardianReport {
  enum Kind : std::int32_t { started, ended };
  std::int32_t kind = started;
  std::int32_t process = 0;
  std::int32_t status = 0;  // As of wait(2).
};

// Becomes the reaper of what is forked below this process, and deaf to the terminal.
void prepare_guardian();

// Reports the end of `program` on `socket`. When the other end of that is closed, kills what is
// left, removes the directory and ends.
[[noreturn]] void guard(pid_t program, int socket, const char* directory);

}  // namespace softhca
