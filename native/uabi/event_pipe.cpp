#include "uabi/event_pipe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

namespace softhca {
namespace {

// As large as an unprivileged process may make one pipe. What all pipes of a user may take together
// is a few dozen times that, so that none is larger than it has to be.
constexpr int kMostPipeBytes = 1 << 20;

// Makes a full pipe larger; false, if it cannot be.
bool grow(int pipe) {
  const int bytes = fcntl(pipe, F_GETPIPE_SZ);
  return bytes > 0 && bytes < kMostPipeBytes && fcntl(pipe, F_SETPIPE_SZ, 2 * bytes) > bytes;
}

}  // namespace

EventPipe::EventPipe(int write_fd) : pipe_(fcntl(write_fd, F_DUPFD_CLOEXEC, 0)) {
  const int flags = pipe_.is_open() ? fcntl(pipe_.get(), F_GETFL) : -1;
  if (flags < 0 || fcntl(pipe_.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    error_ = errno;
  }
}

bool EventPipe::put(std::uint64_t user_handle) {
  do {
    if (::write(pipe_.get(), &user_handle, sizeof user_handle) == sizeof user_handle) return true;
  } while (errno == EAGAIN && grow(pipe_.get()));
  return false;
}

void EventPipe::write(std::uint64_t user_handle) {
  const std::lock_guard lock(mutex_);
  if (put(user_handle)) {
    ++written_[user_handle];
  }
}

std::uint64_t EventPipe::forget(std::uint64_t user_handle) {
  const std::lock_guard lock(mutex_);
  // A reading end of our own: to keep one would hide that the program has closed its own.
  const std::string path = "/proc/self/fd/" + std::to_string(pipe_.get());
  const FileDescriptor unread(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::vector<std::uint64_t> others;
  std::uint64_t taken_back = 0;
  std::array<std::uint64_t, 512> records;
  ssize_t got = 0;
  while (unread.is_open() && (got = read(unread.get(), records.data(), sizeof records)) > 0) {
    for (std::size_t at = 0; at < static_cast<std::size_t>(got) / 8; ++at) {
      if (records[at] == user_handle) {
        ++taken_back;
      } else {
        others.push_back(records[at]);
      }
    }
  }
  for (const std::uint64_t other : others) {
    put(other);
  }
  const auto found = written_.find(user_handle);
  const std::uint64_t written = found == written_.end() ? 0 : found->second;
  written_.erase(user_handle);
  return written - std::min(taken_back, written);
}

}  // namespace softhca
