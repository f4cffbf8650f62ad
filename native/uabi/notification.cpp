#include "uabi/notification.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "driver/clock.hpp"
#include "uabi/seccomp_abi.hpp"

namespace softhca {

bool Answers::send(std::uint64_t id, std::int64_t value, int error, std::uint32_t flags) const {
  seccomp_notif_resp response{};
  response.id = id;
  response.val = value;
  response.error = -error;
  response.flags = flags;
  const std::uint64_t since_ns = monotonic_ns();
  int sent;
  do {
    sent = ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &response);
  } while (sent != 0 && errno == EINTR);
  waking_.answered(since_ns, monotonic_ns());
  return sent == 0;
}

bool Answers::proceed(std::uint64_t id) const {
  return send(id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}

// Adding waits for the task, until a signal comes, or who stops us or attaches a debugger: then it
// was not added, and is tried again. The answer is a step of its own (no SECCOMP_ADDFD_FLAG_SEND),
// since the kernel would take it for given by then, and the task's open(2) would return 0.
int Answers::add_descriptor(std::uint64_t id, int descriptor, int at, bool close_on_exec,
                            bool is_answer) const {
  seccomp_notif_addfd request{};
  request.id = id;
  request.flags = at >= 0 ? SECCOMP_ADDFD_FLAG_SETFD : 0U;
  request.srcfd = static_cast<std::uint32_t>(descriptor);
  request.newfd = at >= 0 ? static_cast<std::uint32_t>(at) : 0U;
  request.newfd_flags = close_on_exec ? O_CLOEXEC : 0;
  int number;
  do {
    number = ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_ADDFD, &request);
  } while (number < 0 && errno == EINTR);
  if (number >= 0 && is_answer && !give(id, number)) return -1;
  return number;
}

bool Answers::is_valid(std::uint64_t id) const {
  int failed;
  do {
    failed = ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_ID_VALID, &id);
  } while (failed != 0 && errno == EINTR);
  return failed == 0;
}

}  // namespace softhca
