#include "driver/event_bell.hpp"

#include <sys/eventfd.h>

#include <cerrno>

namespace softhca {

int EventBell::open() {
  readable_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return readable_.is_open() ? 0 : errno;
}

void EventBell::set(bool events_wait) {
  if (rings_ == events_wait || for_good_) return;
  rings_ = events_wait;
  eventfd_t count = 0;
  if (rings_) {
    eventfd_write(readable_.get(), 1);
  } else {
    eventfd_read(readable_.get(), &count);
  }
}

void EventBell::ring_for_good() {
  set(true);
  for_good_ = true;
}

}  // namespace softhca
