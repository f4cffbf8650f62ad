#include "uabi/file_watch.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace softhca {

const char* why_no_inotify(int error) {
  switch (error) {
    case EMFILE:
      return "this user has no inotify instance left, or no descriptor: "
             "fs.inotify.max_user_instances is for all containers of a user together";
    case ENOSPC:
      return "this user has no inotify watch left: fs.inotify.max_user_watches is for all "
             "containers of a user together";
    default:
      return "inotify is not to be had";
  }
}

Status FileWatch::open() {
  inotify_.reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (inotify_.is_open()) return Status::success();
  return refuse(errno, "file", 0, why_no_inotify(errno));
}

Result<int> FileWatch::add(int descriptor) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
  const int watch = ::inotify_add_watch(inotify_.get(), path, IN_CLOSE_WRITE);
  if (watch < 0) return refuse(errno, "file", 0, why_no_inotify(errno));
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
