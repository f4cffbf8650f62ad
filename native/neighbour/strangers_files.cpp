#include "neighbour/strangers_files.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace softhca {
namespace {

constexpr int kMostWaiting = 16;

// The thread lives as long as there is something to close.
class Closer {
 public:
  void take(FileDescriptor file) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(file));
    ++count_;
    if (!runs_) runs_ = start();
    if (!runs_) close_one();
  }
  bool is_behind() const { return count_.load(std::memory_order_relaxed) >= kMostWaiting; }
  // Whose bell it is may be gone by then, so that the descriptor is a copy.
  bool ring_when_done(std::uint64_t who, int bell) {
    const std::lock_guard lock(mutex_);
    if (!is_behind()) return false;
    FileDescriptor& copy = bells_[who];
    if (!copy.is_open()) copy.reset(fcntl(bell, F_DUPFD_CLOEXEC, 0));
    return copy.is_open();
  }

 private:
  // No signal of the program's is for this thread.
  bool start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
      std::thread([this] { run(); }).detach();
    } catch (const std::system_error&) {
      started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!waiting_.empty()) {
      FileDescriptor file = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      file.reset();
      lock.lock();
      --count_;
      if (!is_behind()) ring();
    }
    runs_ = false;
  }

  void close_one() {
    waiting_.pop_back();
    --count_;
  }

  void ring() {
    for (const auto& [who, bell] : bells_) eventfd_write(bell.get(), 1);
    bells_.clear();
  }

  std::mutex mutex_;
  std::deque<FileDescriptor> waiting_;
  std::map<std::uint64_t, FileDescriptor> bells_;
  std::atomic<int> count_{0};  // With the one that is being closed.
  bool runs_ = false;
};

// Never destroyed: its thread may outlive the program's static objects. A child of fork() makes a
// new one.
std::atomic<Closer*> the_closer{nullptr};

Closer& closer() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { the_closer.store(nullptr); });
  static_cast<void>(registered);
  Closer* current = the_closer.load();
  if (current == nullptr) {
    auto made = std::make_unique<Closer>();
    if (the_closer.compare_exchange_strong(current, made.get())) current = made.release();
  }
  return *current;
}

// Memory, or what has no type, as eventfds. Nothing here asks a file system that is a program.
bool is_closed_at_once(int file) {
  struct statx status;
  return fcntl(file, F_GET_SEALS) >= 0 ||
         (statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0 &&
          (status.stx_mode & S_IFMT) == 0);
}

}  // namespace

bool close_strangers_file(FileDescriptor file) {
  if (!file.is_open() || is_closed_at_once(file.get())) return true;
  closer().take(std::move(file));
  return false;
}

// What is in it and was not heard may be files. Nothing comes in any more. A message is told from
// the end, though it may be as short, by the credentials that it has no room to leave.
void close_strangers_socket(FileDescriptor socket) {
  if (!socket.is_open()) return;
  const int on = 1;
  shutdown(socket.get(), SHUT_RDWR);
  setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  msghdr header{};
  if (recvmsg(socket.get(), &header, MSG_PEEK | MSG_DONTWAIT) >= 0 &&
      (header.msg_flags & MSG_CTRUNC) != 0) {
    closer().take(std::move(socket));
  }
}

bool closing_is_behind() {
  const Closer* const current = the_closer.load();
  return current != nullptr && current->is_behind();
}

bool ring_when_closed(std::uint64_t who, int bell) {
  Closer* const current = the_closer.load();
  return current != nullptr && current->ring_when_done(who, bell);
}

}  // namespace softhca
