#include "uabi/guardian.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

namespace softhca {
namespace {

constexpr int kSocket = 3;
constexpr int kDeepest = 16;  // Of the directories that are removed.

// As getdents64(2) writes it.
struct Entry {
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

// Calls `visit(directory, name)` for each entry. opendir(3) would allocate memory.
template <class Visit>
void for_each_entry(int directory, Visit&& visit) {
  alignas(Entry) char buffer[4096];
  for (;;) {
    const long got = ::syscall(SYS_getdents64, directory, buffer, sizeof(buffer));
    if (got <= 0) return;
    for (long at = 0; at < got;) {
      const Entry* entry = reinterpret_cast<const Entry*>(buffer + at);
      const char* name = entry->name;
      if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) visit(directory, name);
      at += entry->length;
    }
  }
}

void remove_below(int directory, int depth) {
  for_each_entry(directory, [depth](int parent, const char* name) {
    if (::unlinkat(parent, name, 0) == 0 || depth == 0) return;
    const int below = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0) return;
    remove_below(below, depth - 1);
    ::close(below);
    ::unlinkat(parent, name, AT_REMOVEDIR);
  });
}

void remove_directory(const char* path) {
  if (path[0] == 0) return;
  const int directory = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return;
  remove_below(directory, kDeepest);
  ::close(directory);
  ::rmdir(path);
}

// The parent of a process, from /proc; 0 if it is gone.
pid_t parent_of(int proc, const char* name) {
  char path[32] = {};
  std::strncpy(path, name, 16);
  std::strcat(path, "/stat");
  const int file = ::openat(proc, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[512];
  const ssize_t got = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  if (got <= 0) return 0;
  text[got] = 0;
  // The program's name stands in parentheses, and may contain any.
  const char* end = std::strrchr(text, ')');
  if (end == nullptr || std::strlen(end) < 5) return 0;
  return static_cast<pid_t>(std::strtol(end + 4, nullptr, 10));
}

// Kills our children, until there is none: children of the dead become ours.
void kill_all() {
  const pid_t self = ::getpid();
  for (;;) {
    const int proc = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc >= 0) {
      for_each_entry(proc, [self](int directory, const char* name) {
        if (name[0] < '1' || name[0] > '9' || parent_of(directory, name) != self) return;
        ::kill(static_cast<pid_t>(std::strtol(name, nullptr, 10)), SIGKILL);
      });
      ::close(proc);
    }
    if (::waitpid(-1, nullptr, 0) < 0 && errno == ECHILD) return;
  }
}

void close_from(int first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  // Sandboxes that are older than the call (Linux 5.9) refuse it.
  const int directory = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  for_each_entry(directory, [first](int own, const char* name) {
    const int number = static_cast<int>(std::strtol(name, nullptr, 10));
    if (number >= first && number != own) ::close(number);
  });
  ::close(directory);
}

}  // namespace

void prepare_guardian() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::signal(fault, SIG_DFL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  ::prctl(PR_SET_NAME, "softhca-guard", 0, 0, 0);
}

void guard(pid_t program, int socket, const char* directory) {
  // Descriptors of the supervisor would be kept open here after its end.
  ::dup2(socket, kSocket);
  close_from(kSocket + 1);
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_SETMASK, &children, nullptr);
  const int reaped = ::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  GuardianReport report{GuardianReport::started, program, 0};
  (void)::send(kSocket, &report, sizeof(report), MSG_NOSIGNAL);
  pollfd waits[] = {{kSocket, POLLIN, 0}, {reaped, POLLIN, 0}};
  for (;;) {
    // A second is long enough not to be noticed, and an end that was missed is found then.
    (void)::poll(waits, 2, 1000);
    signalfd_siginfo information;
    while (::read(reaped, &information, sizeof(information)) > 0) {
    }
    int status = 0;
    for (pid_t child; (child = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (child != program) continue;
      report = {GuardianReport::ended, child, status};
      (void)::send(kSocket, &report, sizeof(report), MSG_NOSIGNAL);
    }
    char byte;
    const ssize_t got = ::recv(kSocket, &byte, 1, MSG_DONTWAIT);
    if (got > 0) directory = "";  // Who ends in good order removes it itself.
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
  }
  kill_all();
  remove_directory(directory);
  ::_exit(0);
}

}  // namespace softhca
