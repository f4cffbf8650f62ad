#include "uabi/task_descriptor.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "link/file_descriptor.hpp"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace softhca {
namespace {

constexpr unsigned kOfThread = O_EXCL;  // PIDFD_THREAD, which older headers lack.

}  // namespace

pid_t process_of(pid_t task) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%d/status", task);
  const FileDescriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t got = file.is_open() ? ::read(file.get(), text, sizeof(text) - 1) : -1;
  if (got <= 0) return -1;
  text[got] = 0;
  const char* line = std::strstr(text, "\nTgid:");
  return line == nullptr ? -1 : static_cast<pid_t>(std::strtol(line + 6, nullptr, 10));
}

int take_descriptor(pid_t task, int descriptor) {
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, task, kOfThread)));
  if (!pidfd.is_open()) {
    // Before Linux 6.9 a pidfd is of a process, whose first thread has the same descriptors.
    pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, process_of(task), 0)));
  }
  if (!pidfd.is_open()) return -1;
  return static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd.get(), descriptor, 0));
}

}  // namespace softhca
