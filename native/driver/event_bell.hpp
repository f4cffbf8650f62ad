// A descriptor that is readable while asynchronous events wait in the adapter.
#pragma once

#include "link/file_descriptor.hpp"

namespace softhca {

// Guarded by the adapter's mutex, `fd()` excepted: what it tells is the adapter's state.
class EventBell {
 public:
  // Makes the descriptor; returns errno.
  int open();
  int fd() const { return readable_.get(); }
  bool rings() const { return rings_; }
  // Costs a system call only when the answer changes.
  void set(bool events_wait);
  // Readable from now on: wakes whoever waits for events that will not come.
  void ring_for_good();
  // Forgets the descriptor, which somebody else has closed.
  void lose() { readable_.release(); }
  // For a child after fork().
  void abandon() { readable_.reset(); }

 private:
  FileDescriptor readable_;
  bool rings_ = false;
  bool for_good_ = false;
};

}  // namespace softhca
