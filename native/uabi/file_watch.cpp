#include "uabi/file_watch.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace softhca {

Status FileWatch::open() {
  inotify_.reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (inotify_.is_open()) return Status::success();
  return refuse(errno, "file", 0, "inotify is not to be had");
}

Result<int> FileWatch::add(int descriptor) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
  const int watch = ::inotify_add_watch(inotify_.get(), path, IN_CLOSE_WRITE);
  if (watch < 0) return refuse(errno, "file", 0, "cannot be watched");
  return watch;
}

void FileWatch::remove(int watch) { ::inotify_rm_watch(inotify_.get(), watch); }

std::vector<int> FileWatch::take_closed() {
  std::vector<int> closed;
  alignas(inotify_event) char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(inotify_.get(), buffer, sizeof(buffer));
    if (got <= 0) return closed;
    for (const char* at = buffer; at < buffer + got;) {
      inotify_event event;
      std::memcpy(&event, at, sizeof(event));
      if ((event.mask & IN_CLOSE_WRITE) != 0) closed.push_back(event.wd);
      at += sizeof(event) + event.len;
    }
  }
}

}  // namespace softhca
