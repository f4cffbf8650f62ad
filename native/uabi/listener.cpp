#include "uabi/listener.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "driver/clock.hpp"
#include "driver/signals_blocked.hpp"
#include "uabi/arm_command.hpp"
#include "uabi/doorbell_record.hpp"
#include "uabi/lookout.hpp"
#include "uabi/seccomp_abi.hpp"
#include "uabi/task_memory.hpp"

namespace softhca {
namespace {

const SystemCallRule* rule_of(std::uint32_t number) {
  const Architecture* architecture = native_architecture();
  if (architecture == nullptr) return nullptr;
  const auto found =
      std::find_if(architecture->rules.begin(), architecture->rules.end(),
                   [&](const SystemCallRule& rule) { return rule.number == number; });
  return found == architecture->rules.end() ? nullptr : &*found;
}

// Whether a command of posting names no request, as those of the provider, which lie in its queue.
bool is_doorbell(const std::uint8_t* command) {
  static constexpr std::uint8_t nothing[kWrittenLastAt - kRequestsAt] = {};
  std::uint16_t words;
  std::memcpy(&words, command + kInWordsAt, sizeof(words));
  return words * 4 == kDoorbellBytes &&
         std::memcmp(command + kRequestsAt, nothing, sizeof(nothing)) == 0;
}

void count_up(int eventfd) { (void)::eventfd_write(eventfd, 1); }

}  // namespace

Listener::Listener(int descriptor, std::shared_ptr<Known> known)
    : descriptor_(descriptor),
      known_(std::move(known)),
      waking_([descriptor](bool near) {
        const unsigned long flags = near ? SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP : 0UL;
        return ::ioctl(descriptor, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags) == 0;
      }),
      answers_(descriptor, waking_),
      path_calls_(answers_, known_->paths, known_->files) {}

Listener::~Listener() { stop(); }

Status Listener::start() {
  ready_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ready_.is_open() || !stop_.is_open()) {
    return refuse(errno, "listener", 0, "cannot have an eventfd");
  }
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return refuse(error.code().value(), "listener", 0, "cannot have a thread");
  }
  return Status::success();
}

void Listener::stop() {
  if (!thread_.joinable()) return;
  count_up(stop_.get());
  thread_.join();
}

std::optional<Asked> Listener::next() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) {
    eventfd_t count;
    if (!over_.load()) (void)::eventfd_read(ready_.get(), &count);
    return std::nullopt;
  }
  const Asked asked = queue_.front();
  queue_.pop_front();
  if (queue_.empty() && !over_.load()) {
    eventfd_t count;
    (void)::eventfd_read(ready_.get(), &count);
  }
  return asked;
}

void Listener::queue_for_python(const Asked& asked) {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) count_up(ready_.get());
  queue_.push_back(asked);
}

void Listener::run() {
  pollfd waits[] = {{descriptor_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  Lookout lookout(Lookout::kMostNs);
  for (;;) {
    const std::uint64_t now_ns = monotonic_ns();
    // Who is woken near needs not look out, and would keep the processor from who was answered.
    const bool sleeps = waking_.settle(now_ns) || !lookout.goes_on(now_ns);
    const int ready = ::poll(waits, 2, sleeps ? -1 : 0);
    if (ready < 0 && errno != EINTR) break;
    if (ready <= 0) continue;
    if (waits[1].revents != 0) break;
    if ((waits[0].revents & POLLIN) == 0) {
      // The kernel says POLLERR where something interrupted its look, such as a SIGSTOP.
      if ((waits[0].revents & (POLLHUP | POLLNVAL)) != 0) break;
      continue;
    }
    seccomp_notif asked{};
    if (::ioctl(descriptor_.get(), SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;
    if (sleeps) lookout.woken(monotonic_ns());
    const SystemCallRule* rule = rule_of(static_cast<std::uint32_t>(asked.data.nr));
    if (rule == nullptr) {
      answers_.proceed(asked.id);
      continue;
    }
    Notification call;
    call.id = asked.id;
    call.task = static_cast<pid_t>(asked.pid);
    call.call = rule->call;
    std::copy(std::begin(asked.data.args), std::end(asked.data.args), call.arguments.begin());
    handle(call);
    lookout.found(monotonic_ns());
  }
  const std::lock_guard lock(mutex_);
  over_.store(true);
  count_up(ready_.get());
}

void Listener::handle(const Notification& call) {
  switch (call.call) {
    case SystemCall::ioctl:
    case SystemCall::write:
    case SystemCall::dup:
    case SystemCall::fcntl:
      on_descriptor_call(call);
      return;
    default:
      break;
  }
  switch (path_calls_.answer(call)) {
    case Outcome::answered:
      return;
    case Outcome::not_ours:
      if (!told_of_refusal_ && is_refused(call.task)) note_refusal(call.task);
      answers_.proceed(call.id);
      return;
    case Outcome::for_python:
      queue_for_python({call, 0});
      return;
  }
}

// Once is enough to say what is wrong with all of them.
void Listener::note_refusal(pid_t task) {
  told_of_refusal_ = true;
  refused_task_.store(task);
  count_up(ready_.get());
}

void Listener::answer_from_tree(const Notification& call) {
  if (path_calls_.answer(call, true) != Outcome::answered) answers_.refuse(call.id, ENOENT);
}

void Listener::on_descriptor_call(const Notification& call) {
  char link[48];
  std::snprintf(link, sizeof(link), "/proc/%d/fd/%d", call.task,
                static_cast<int>(call.arguments[0]));
  struct stat file;
  if (::stat(link, &file) != 0 || !known_->files.find(file).has_value()) {
    answers_.proceed(call.id);
    return;
  }
  if (!rings(call, file.st_ino) && !arms(call, file.st_ino)) queue_for_python({call, file.st_ino});
}

// A doorbell; false, and nothing was done, if it is none.
bool Listener::rings(const Notification& call, std::uint64_t inode) {
  if (call.call != SystemCall::write || call.arguments[2] != kDoorbellBytes) return false;
  std::uint8_t command[kDoorbellBytes];
  std::uint32_t number;
  std::uint32_t handle;
  const std::size_t got = read_task(call.task, call.arguments[1], command, sizeof(command));
  std::memcpy(&number, command, sizeof(number));
  std::memcpy(&handle, command + kQpHandleAt, sizeof(handle));
  if (got != sizeof(command) || number != kPostSend || !is_doorbell(command)) return false;
  const int error = known_->doorbells.call(inode, handle);
  if (error == 0) {
    answers_.give(call.id, static_cast<std::int64_t>(kDoorbellBytes));
  } else {
    answers_.refuse(call.id, error);
  }
  return true;
}

// A completion queue that is armed; false, if this is something else, or cannot be done.
bool Listener::arms(const Notification& call, std::uint64_t inode) {
  const bool is_ioctl = call.call == SystemCall::ioctl && known_->knows_ioctl.load();
  const bool is_write = call.call == SystemCall::write && call.arguments[2] == kArmWriteBytes;
  if (!is_ioctl && !is_write) return false;
  std::uint8_t bytes[std::max(kArmIoctlBytes, kArmWriteBytes)];
  const std::size_t length = is_ioctl ? kArmIoctlBytes : kArmWriteBytes;
  const std::uint64_t address = call.arguments[is_ioctl ? 2 : 1];
  if (read_task(call.task, address, bytes, length) != length) return false;
  const ByteView given(bytes, length);
  const std::optional<ArmCommand> command =
      is_ioctl ? arm_command_of_ioctl(given) : arm_command_of_write(given);
  if (!command || known_->arms.call(inode, command->cq_handle, command->solicited_only) != 0) {
    return false;
  }
  answers_.give(call.id, is_ioctl ? 0 : static_cast<std::int64_t>(kArmWriteBytes));
  return true;
}

}  // namespace softhca
