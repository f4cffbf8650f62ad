// A descriptor that becomes readable at a moment of the monotonic clock.
#pragma once

#include <cstdint>

#include "link/file_descriptor.hpp"

namespace softhca {

class DeadlineTimer {
 public:
  // Returns errno.
  int open();
  int fd() const { return timer_.get(); }
  // Makes the descriptor readable at `deadline_ns` or a little before what it is asked for later:
  // an earlier deadline costs a system call, a later one waits until the timer has gone off once.
  void arm(std::uint64_t deadline_ns, std::uint64_t now_ns);
  // Makes it unreadable again after it has gone off. Unlike the rest for any thread.
  void clear() const;
  // Forgets the descriptor, which somebody else has closed.
  void lose() { timer_.release(); }
  void abandon() { timer_.reset(); }

 private:
  FileDescriptor timer_;
  std::uint64_t armed_ns_ = ~std::uint64_t{0};  // kNever: not running.
};

}  // namespace softhca
