#include "uabi/launcher.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "link/file_descriptor.hpp"
#include "uabi/guardian.hpp"

namespace softhca {
namespace {

constexpr const char* kShell = "/bin/sh";

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
  std::vector<char*> shell_arguments;  // Of a script that says no interpreter.
  std::vector<char*> environment;
  std::vector<sock_filter> filter;
  int socket;    // The program's end, until it is executed.
  int guardian;  // The guardian's end.
  const char* directory;
  pid_t group;  // Of the supervisor.
  pid_t tracer;
  std::uint64_t descriptor_limit;
  sigset_t signals;
  sigset_t ignored;
};

// A pair of sockets, one of which is for a child.
struct Ends {
  FileDescriptor ours;
  FileDescriptor theirs;

  bool open() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
    ours.reset(ends[0]);
    theirs.reset(ends[1]);
    return true;
  }
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

// What the program inherits, as after any exec: nohup(1) counts on it, and so do shells.
sigset_t ignored_signals() {
  sigset_t ignored;
  ::sigemptyset(&ignored);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    // Python ignores these two by itself, which the program shall not inherit.
    if (signal == SIGPIPE || signal == SIGXFSZ) continue;
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) {
      ::sigaddset(&ignored, signal);
    }
  }
  return ignored;
}

[[noreturn]] void run_program(const Prepared& prepared, pid_t parent) {
  for (int signal = 1; signal < NSIG; ++signal) {
    ::signal(signal, ::sigismember(&prepared.ignored, signal) == 1 ? SIG_IGN : SIG_DFL);
  }
  ::sigprocmask(SIG_SETMASK, &prepared.signals, nullptr);
  ::setpgid(0, prepared.group);
  rlimit descriptors{};
  if (prepared.descriptor_limit != 0 && ::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = prepared.descriptor_limit;
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  // Without us, what it asks of the kernel would fail for no reason that it could see.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != parent) ::_exit(127);
  // Fails where there is no Yama, which is as well.
  if (prepared.tracer > 0) ::prctl(PR_SET_PTRACER, prepared.tracer, 0, 0, 0);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail(prepared, Stage::privileges);
  const int listener = install(prepared);
  if (listener < 0) fail(prepared, Stage::filter);
  if (!send_descriptor(prepared.socket, listener)) fail(prepared, Stage::pass);
  ::close(listener);
  ::execve(prepared.path, prepared.arguments.data(), prepared.environment.data());
  // As execvp(3) does, and shells.
  if (errno == ENOEXEC) {
    ::execve(kShell, prepared.shell_arguments.data(), prepared.environment.data());
  }
  fail(prepared, Stage::execute);
}

[[noreturn]] void run_guardian(const Prepared& prepared) {
  // Not in the group of the others, which may be killed as a whole.
  ::setpgid(0, 0);
  prepare_guardian();
  const pid_t self = ::getpid();
  const pid_t program = ::fork();
  if (program == 0) run_program(prepared, self);
  if (program < 0) fail(prepared, Stage::pass);
  ::close(prepared.socket);
  guard(program, prepared.guardian, prepared.directory);
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

bool hear_of_start(int socket, GuardianReport& report) {
  ssize_t got;
  do {
    got = ::recv(socket, &report, sizeof(report), 0);
  } while (got < 0 && errno == EINTR);
  return got == sizeof(report);
}

Status explain(const Failure& failure) {
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
  return refuse(failure.error, "path", value, "execve(2) is refused");
}

}  // namespace

Result<Launched> launch(const Launch& launch) {
  const Architecture* architecture = native_architecture();
  if (architecture == nullptr) {
    return refuse(EOPNOTSUPP, "program", 0, "only x86-64 and arm64 are known");
  }
  Ends start;  // Of the start; the exec closes it.
  Ends life;   // Between the guardian and us.
  if (!start.open() || !life.open()) return refuse(errno, "program", 0, "socketpair(2) failed");
  std::vector<std::string> shell_words = {kShell, launch.path};
  if (launch.arguments.size() > 1) {
    shell_words.insert(shell_words.end(), launch.arguments.begin() + 1, launch.arguments.end());
  }
  Prepared prepared{launch.path.c_str(),
                    pointers(launch.arguments),
                    pointers(shell_words),
                    pointers(launch.environment),
                    build_filter(*architecture, launch.ours, launch.doorbells),
                    start.theirs.get(),
                    life.theirs.get(),
                    launch.directory.c_str(),
                    ::getpgrp(),
                    launch.tracer,
                    launch.descriptor_limit,
                    {},
                    ignored_signals()};
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &prepared.signals);
  const pid_t guardian = ::fork();
  if (guardian == 0) run_guardian(prepared);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &prepared.signals, nullptr);
  start.theirs.reset();
  life.theirs.reset();
  if (guardian < 0) return refuse(fork_error, "program", 0, "fork(2) failed");
  Launched launched;
  launched.guardian = guardian;
  const Failure failure = hear(start.ours.get(), launched.listener);
  GuardianReport report;
  if (failure.error == 0 && hear_of_start(life.ours.get(), report)) {
    launched.process = report.process;
    launched.guardian_socket = life.ours.get();
    life.ours.release();
    return launched;
  }
  if (launched.listener >= 0) ::close(launched.listener);
  life.ours.reset();
  ::waitpid(guardian, nullptr, 0);
  return explain(failure.error == 0 ? Failure{Stage::pass, ECHILD} : failure);
}

}  // namespace softhca
