#include "neighbour/shared_buffers.hpp"

#include <fcntl.h>
#include <pthread.h>

#include <utility>

namespace softhca {

bool SharedBuffers::add(std::uint64_t address, std::uint64_t length, int fd) {
  FileDescriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.is_open()) return false;
  const std::lock_guard lock(mutex_);
  by_address_[address] = {{next_++, address, length}, std::move(copy), fd};
  return true;
}

void SharedBuffers::remove(int fd) {
  const std::lock_guard lock(mutex_);
  removals_ += std::erase_if(by_address_, [fd](const auto& one) { return one.second.named == fd; });
}

SharedBuffer SharedBuffers::find(std::uint64_t address, std::uint64_t length) const {
  const std::lock_guard lock(mutex_);
  auto above = by_address_.upper_bound(address);
  if (above == by_address_.begin()) return {};
  const SharedBuffer& buffer = std::prev(above)->second.buffer;
  return buffer.holds(address, length) ? buffer : SharedBuffer{};
}

FileDescriptor SharedBuffers::descriptor(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [address, entry] : by_address_) {
    if (entry.buffer.number == number) {
      return FileDescriptor(fcntl(entry.fd.get(), F_DUPFD_CLOEXEC, 0));
    }
  }
  return FileDescriptor();
}

// Never destroyed: buffers may go later than everything else.
SharedBuffers& shared_buffers() {
  static SharedBuffers* const table = [] {
    const auto let_go = [] { shared_buffers().let_go(); };
    pthread_atfork([] { shared_buffers().hold(); }, let_go, let_go);
    return new SharedBuffers;
  }();
  return *table;
}

}  // namespace softhca
