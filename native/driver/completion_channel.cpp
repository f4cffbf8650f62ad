#include "driver/completion_channel.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

namespace softhca {
namespace {

// A CQ that is armed again and again while nobody reads has more than one event. Beyond this many
// unread ones, a CQ that has one gets no second: its reader will wake up all the same.
constexpr std::size_t kManyEvents = 65536;

}  // namespace

CompletionChannel::~CompletionChannel() {
  if (lost_.load()) readable_.release();
}

int CompletionChannel::open() {
  readable_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return readable_.is_open() ? 0 : errno;
}

// The descriptor follows the queue: written when the first event comes, read when the last goes.
void CompletionChannel::settle() {
  const bool wanted = !events_.empty() || closed_.load();
  if (wanted == signaled_.load()) return;
  signaled_.store(wanted);
  eventfd_t count = 0;
  if (wanted) {
    eventfd_write(readable_.get(), 1);
  } else {
    eventfd_read(readable_.get(), &count);
  }
}

void CompletionChannel::notify(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  if (events_.size() >= kManyEvents && std::ranges::find(events_, cq) != events_.end()) return;
  events_.push_back(cq);
  settle();
}

std::uint32_t CompletionChannel::pop() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return 0;
  const std::uint32_t cq = events_.front();
  events_.pop_front();
  settle();
  return cq;
}

void CompletionChannel::put_back(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  events_.push_front(cq);
  settle();
}

void CompletionChannel::forget(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  std::erase(events_, cq);
  settle();
}

void CompletionChannel::close() {
  const std::lock_guard lock(mutex_);
  closed_.store(true);
  settle();
}

}  // namespace softhca
