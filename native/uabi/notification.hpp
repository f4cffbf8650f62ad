// One system call that the kernel asks us about, and the ways to answer it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "uabi/near_waking.hpp"
#include "uabi/system_calls.hpp"

namespace softhca {

struct Notification {
  std::uint64_t id = 0;
  pid_t task = 0;
  SystemCall call = SystemCall::write;
  std::array<std::uint64_t, 6> arguments{};
};

// Answers on a listener's descriptor. Each is false if nobody waits for the answer any more.
class Answers {
 public:
  // `waking` hears how long each took.
  Answers(int listener, NearWaking& waking) : listener_(listener), waking_(waking) {}

  bool give(std::uint64_t id, std::int64_t value) const { return send(id, value, 0, 0); }
  bool refuse(std::uint64_t id, int error) const { return send(id, 0, error, 0); }
  // Lets the kernel do the call.
  bool proceed(std::uint64_t id) const;
  // Gives the task a copy of a descriptor, under the number `at` or, for -1, the lowest free one.
  // With `is_answer` its number is the answer. Returns the number, or -1 and errno.
  int add_descriptor(std::uint64_t id, int descriptor, int at, bool close_on_exec,
                     bool is_answer) const;
  // Whether the task still waits in the same call, and its number is still its own.
  bool is_valid(std::uint64_t id) const;

 private:
  bool send(std::uint64_t id, std::int64_t value, int error, std::uint32_t flags) const;

  int listener_;
  NearWaking& waking_;
};

}  // namespace softhca
