// Tells that addresses or interfaces of this machine change, so that somebody looks at his own.
#pragma once

#include "link/file_descriptor.hpp"

namespace softhca {

// What has changed is not read off the messages, of which some may be lost: condition_of() says
// what is.
class AddressMonitor {
 public:
  // Returns errno. Needs no privilege, but some sandboxes forbid it.
  int open();
  // Readable after a change; -1 if it is not open.
  int fd() const { return socket_.get(); }
  // Makes the descriptor unreadable until the next change.
  void clear();
  void close() { socket_.reset(); }
  // The number may be another file's by now: it is not touched again.
  void lose() { socket_.release(); }

 private:
  FileDescriptor socket_;
};

}  // namespace softhca
