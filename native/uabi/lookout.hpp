// How long a thread that answers programs goes on looking before it sleeps. Waking a thread on a
// processor that sleeps too costs the program some 2 microseconds on hardware and 8 in a virtual
// machine, and as much again until it runs; looking costs a processor, if nobody else wants it.
//
// The time adapts, as that of the kernel's haltpoll does: it grows while calls come so soon that
// looking would have caught them, and shrinks to nothing where they do not.
//
// Where all processors are wanted, a call that wakes this thread displaces somebody: the caller, as
// the kernel wakes who is woken where it is woken from. If that one polls for what another program
// answers, the answer's call comes at once, and is waited for; after that call the displaced one is
// what all wait for.
#pragma once

#include <cstdint>

#include "link/file_descriptor.hpp"

namespace softhca {

// Whether fewer threads want to run, in all of the machine, than there are processors that this one
// may use, or just as many.
bool processor_is_free();

class Lookout {
 public:
  // `most_ns`: the longest time; 0 is not to look at all.
  explicit Lookout(std::uint64_t most_ns, bool (*is_free)() = processor_is_free)
      : most_ns_(most_ns), is_free_(is_free) {}

  static constexpr std::uint64_t kMostNs = 200'000;
  // How soon another program's call follows the one that it waits for.
  static constexpr std::uint64_t kReplyNs = 3'000;
  // Who else wants to run is asked so often; it costs a microsecond or two. Less often where
  // somebody does: it is the one that waits until this thread sleeps.
  static constexpr std::uint64_t kCheckNs = 20'000;
  static constexpr std::uint64_t kCheckWantedNs = 200'000;

  // Something was done just now: the time begins.
  void found(std::uint64_t now_ns);
  // False: it is over, or somebody else wants the processor. The thread sleeps.
  bool goes_on(std::uint64_t now_ns);
  // It has slept, and was woken by a call.
  void woken(std::uint64_t now_ns);

  std::uint64_t limit_ns() const { return limit_ns_; }

 private:
  const std::uint64_t most_ns_;
  bool (*const is_free_)();
  std::uint64_t limit_ns_ = 0;
  std::uint64_t since_ns_ = 0;
  std::uint64_t checked_ns_ = 0;
  bool was_free_ = false;
  bool was_woken_ = false;         // By a call that is not done yet.
  bool displaces_caller_ = false;  // What was done last had woken it.
};

}  // namespace softhca
