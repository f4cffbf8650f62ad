#include "uabi/task_memory.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "link/file_descriptor.hpp"

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

// Docker up to 20.10 forbids the calls that go by a task's number, to whom its memory file is open.
bool is_forbidden(int error) { return error == EPERM || error == ENOSYS; }

FileDescriptor open_memory(pid_t task, int how) {
  const std::string path = "/proc/" + std::to_string(task) + "/mem";
  return FileDescriptor(::open(path.c_str(), how | O_CLOEXEC));
}

// -1 and EPERM, where that is forbidden as well.
ssize_t read_file(pid_t task, std::uint64_t address, void* to, std::size_t length) {
  const FileDescriptor file = open_memory(task, O_RDONLY);
  if (file.is_open()) return ::pread(file.get(), to, length, static_cast<off_t>(address));
  errno = EPERM;
  return -1;
}

// The file would write what the task itself may not.
bool is_writable(pid_t task, std::uint64_t address, std::size_t length) {
  std::ifstream mappings("/proc/" + std::to_string(task) + "/maps");
  const std::uint64_t end = address + length;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  char dash = 0;
  std::string rights;
  std::string rest;
  while (address < end && mappings >> std::hex >> first >> dash >> last >> rights) {
    std::getline(mappings, rest);
    if (last <= address) continue;
    if (first > address || rights.size() < 2 || rights[1] != 'w') return false;
    address = last;
  }
  return address >= end;
}

bool write_file(pid_t task, std::uint64_t address, const void* from, std::size_t length) {
  if (!is_writable(task, address, length)) return false;
  const FileDescriptor file = open_memory(task, O_WRONLY);
  return file.is_open() && ::pwrite(file.get(), from, length, static_cast<off_t>(address)) ==
                               static_cast<ssize_t>(length);
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
  ssize_t got = ::process_vm_readv(task, &local, 1, pieces, length > first ? 2 : 1, 0);
  if (got < 0 && is_forbidden(errno)) got = read_file(task, address, to, length);
  refused_task = got < 0 && errno == EPERM ? task : 0;
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

bool write_task(pid_t task, std::uint64_t address, const void* from, std::size_t length) {
  const iovec local{const_cast<void*>(from), length};
  const iovec there = remote(address, length);
  const ssize_t put = ::process_vm_writev(task, &local, 1, &there, 1, 0);
  if (put < 0 && is_forbidden(errno)) return write_file(task, address, from, length);
  return put == static_cast<ssize_t>(length);
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
