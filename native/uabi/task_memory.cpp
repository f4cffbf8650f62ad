#include "uabi/task_memory.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softhca {
namespace {

// Smallest page of any architecture. A transfer in pieces of it ends where memory ends.
constexpr std::uint64_t kPage = 4096;
// Room for nearly every path, and for the longest that the kernel takes.
constexpr std::size_t kUsualPath = 512;
constexpr std::size_t kLongestPath = 4096;

thread_local pid_t refused_task = 0;

std::size_t to_page_end(std::uint64_t address) {
  return static_cast<std::size_t>(kPage - address % kPage);
}

iovec remote(std::uint64_t address, std::size_t length) {
  return {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), length};
}

}  // namespace

bool is_refused(pid_t task) { return refused_task == task; }

std::size_t read_task(pid_t task, std::uint64_t address, void* to, std::size_t length) {
  // Two pieces are enough for what stands in a page or two; what is longer goes in one.
  const std::size_t first = std::min(length, to_page_end(address));
  const iovec local{to, length};
  const iovec pieces[] = {remote(address, first), remote(address + first, length - first)};
  const ssize_t got = ::process_vm_readv(task, &local, 1, pieces, length > first ? 2 : 1, 0);
  refused_task = got < 0 && errno == EPERM ? task : 0;
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

bool write_task(pid_t task, std::uint64_t address, const void* from, std::size_t length) {
  const iovec local{const_cast<void*>(from), length};
  const iovec there = remote(address, length);
  return ::process_vm_writev(task, &local, 1, &there, 1, 0) == static_cast<ssize_t>(length);
}

std::string read_path(pid_t task, std::uint64_t address) {
  char path[kLongestPath];
  std::size_t room = kUsualPath;
  std::size_t got = read_task(task, address, path, room);
  const void* end = std::memchr(path, 0, got);
  if (end == nullptr && got == room) {
    room = kLongestPath;
    got = read_task(task, address, path, room);
    end = std::memchr(path, 0, got);
  }
  if (end == nullptr) return {};
  return std::string(path, static_cast<std::size_t>(static_cast<const char*>(end) - path));
}

}  // namespace softhca
