// Tells when the last descriptor and the last mapping of a file are gone: whatever way the programs
// came to them (fork, dup, SCM_RIGHTS) and however they end (close, exec, SIGKILL).
#pragma once

#include <vector>

#include "link/file_descriptor.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// What to say where inotify(7) refuses. Its limits are a user's, in all containers together.
const char* why_no_inotify(int error);

class FileWatch {
 public:
  Status open();
  // Readable while files wait that were closed.
  int fd() const { return inotify_.get(); }

  // Watches the file of a descriptor, which may be a memfd if programs get another description of
  // it than memfd_create(2) made: of that one the kernel says nothing. Returns the watch's number.
  Result<int> add(int descriptor);
  void remove(int watch);
  // Numbers of the watches whose files were closed since the last call. Of several descriptions of
  // a file each counts.
  std::vector<int> take_closed();

 private:
  FileDescriptor inotify_;
};

}  // namespace softhca
