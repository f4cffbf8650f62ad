#include "uabi/launcher.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace softhca {
namespace {

// Where the child failed; nothing at all is heard of one that runs.
enum class Stage : int { privileges, filter, pass, execute };

struct Failure {
  Stage stage = Stage::privileges;
  int error = 0;
};

// All that the child needs, made before the fork: between fork and exec of a process with threads
// only system calls are safe.
struct Prepared {
  const char* path;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  std::vector<sock_filter> filter;
  pid_t parent;
  int socket;  // The child's end.
  sigset_t signals;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  // execve(2) takes them as char* for history's sake, and writes nothing there.
  for (const std::string& one : strings) list.push_back(const_cast<char*>(one.c_str()));
  list.push_back(nullptr);
  return list;
}

int install(const Prepared& prepared) {
  sock_fprog program{};
  program.len = static_cast<unsigned short>(prepared.filter.size());
  program.filter = const_cast<sock_filter*>(prepared.filter.data());
  // A call that we are answering is not interrupted by signals that do not kill (Linux 5.19): it
  // would be started again, and done twice.
  for (const unsigned long more : {SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 0UL}) {
    const long listener = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                    SECCOMP_FILTER_FLAG_NEW_LISTENER | more, &program);
    if (listener >= 0 || errno != EINVAL) return static_cast<int>(listener);
  }
  return -1;
}

bool send_descriptor(int socket, int descriptor) {
  char byte = 0;
  iovec vector{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

[[noreturn]] void fail(const Prepared& prepared, Stage stage) {
  const Failure failure{stage, errno};
  (void)::send(prepared.socket, &failure, sizeof(failure), MSG_NOSIGNAL);
  ::_exit(127);
}

[[noreturn]] void run_child(const Prepared& prepared) {
  // Python ignores SIGPIPE, and the program shall not inherit that.
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &prepared.signals, nullptr);
  // Without us, what it asks of the kernel would fail for no reason that it could see.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != prepared.parent) ::_exit(127);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail(prepared, Stage::privileges);
  const int listener = install(prepared);
  if (listener < 0) fail(prepared, Stage::filter);
  if (!send_descriptor(prepared.socket, listener)) fail(prepared, Stage::pass);
  ::close(listener);
  ::execve(prepared.path, prepared.arguments.data(), prepared.environment.data());
  fail(prepared, Stage::execute);
}

// Takes the listener, or what went wrong instead. Then the end of the socket: the exec closed it.
Failure hear(int socket, int& listener) {
  for (;;) {
    Failure failure;
    iovec vector{&failure, sizeof(failure)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got == sizeof(failure)) return failure;
    if (got != 1) return listener >= 0 ? Failure{} : Failure{Stage::pass, ECHILD};
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr) std::memcpy(&listener, CMSG_DATA(header), sizeof(int));
  }
}

Status explain(const Failure& failure, const Launch& launch) {
  const auto value = static_cast<std::uint64_t>(failure.error);
  switch (failure.stage) {
    case Stage::filter:
      if (failure.error == EBUSY) {
        return refuse(EBUSY, "program", value,
                      "another seccomp notifier is in the way: a container runtime's, or this is "
                      "run inside another `softhca run`");
      }
      return refuse(EOPNOTSUPP, "program", value,
                    "seccomp user notification is not to be had here: it needs Linux 5.14 and a "
                    "sandbox that allows seccomp(2)");
    case Stage::privileges:
      return refuse(failure.error, "program", value, "prctl(PR_SET_NO_NEW_PRIVS) is refused");
    case Stage::pass:
      return refuse(failure.error, "program", value, "the listener could not be passed");
    case Stage::execute:
      break;
  }
  (void)launch;
  return refuse(failure.error, "program", value, "cannot be executed");
}

}  // namespace

Result<Launched> launch(const Launch& launch) {
  const Architecture* architecture = native_architecture();
  if (architecture == nullptr) {
    return refuse(EOPNOTSUPP, "program", 0, "only x86-64 and arm64 are known");
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return refuse(errno, "program", 0, "socketpair(2) failed");
  }
  Prepared prepared{launch.path.c_str(),
                    pointers(launch.arguments),
                    pointers(launch.environment),
                    build_filter(*architecture, launch.ours),
                    ::getpid(),
                    ends[1],
                    {}};
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &prepared.signals);
  const pid_t process = ::fork();
  if (process == 0) run_child(prepared);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &prepared.signals, nullptr);
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    return refuse(fork_error, "program", 0, "fork(2) failed");
  }
  Launched launched{process, -1};
  const Failure failure = hear(ends[0], launched.listener);
  ::close(ends[0]);
  if (failure.error == 0) return launched;
  if (launched.listener >= 0) ::close(launched.listener);
  ::waitpid(process, nullptr, 0);
  return explain(failure, launch);
}

}  // namespace softhca
