#include "driver/event_queue.hpp"

#include <sys/eventfd.h>

#include <cerrno>

namespace softhca {

int EventQueue::open() {
  readable_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return readable_.is_open() ? 0 : errno;
}

void EventQueue::push(const AsyncEvent& event) {
  const std::lock_guard lock(mutex_);
  if (events_->size() == kCapacity) events_->pop_front();
  events_->push_back(event);
  if (events_->size() == 1) eventfd_write(readable_.get(), 1);
}

bool EventQueue::pop(AsyncEvent& event) {
  const std::lock_guard lock(mutex_);
  if (events_->empty()) return false;
  event = events_->front();
  events_->pop_front();
  if (events_->empty()) {
    eventfd_t count = 0;
    eventfd_read(readable_.get(), &count);
  }
  return true;
}

void EventQueue::abandon() {
  static_cast<void>(events_.release());
  readable_.reset();
}

}  // namespace softhca
