#include "uabi/process_memory.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace softhca {
namespace {

// From here on the calls that go by the number cost less.
constexpr std::size_t kLongBytes = 8192;

Status refuse_process(pid_t pid, const char* rule) {
  return refuse(errno, "pid", static_cast<std::uint64_t>(pid), rule);
}

ByteSpan bytes_of_word(std::uint64_t& word) {
  return {reinterpret_cast<std::uint8_t*>(&word), sizeof word};
}

}  // namespace

Result<std::shared_ptr<ProcessMemory>> ProcessMemory::open(pid_t pid) {
  auto opened = std::make_shared<ProcessMemory>();
  opened->pid_ = pid;
  opened->process_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!opened->process_.is_open()) {
    return refuse_process(pid, "names no process");
  }
  const std::string path = "/proc/" + std::to_string(pid) + "/mem";
  opened->memory_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened->memory_.is_open()) {
    return refuse_process(pid, "does not let its memory be reached");
  }
  // As long as the process is there, its number was nobody else's when the file was opened.
  if (syscall(SYS_pidfd_send_signal, opened->process_.get(), 0, nullptr, 0) != 0) {
    return refuse_process(pid, "has ended");
  }
  return opened;
}

// Of memory that is no more nothing can be read, not even that it is not mapped.
bool ProcessMemory::is_gone() const {
  std::uint8_t byte;
  return pread(memory_.get(), &byte, 1, 0) == 0;
}

bool ProcessMemory::is_there(std::uint64_t address) const {
  std::uint8_t byte;
  return pread(memory_.get(), &byte, 1, static_cast<off_t>(address)) == 1;
}

bool ProcessMemory::copy_in(std::uint64_t address, ByteSpan to) {
  if (to.size() >= kLongBytes && is_there(address)) {
    const iovec here{to.data(), to.size()};
    const iovec there{reinterpret_cast<void*>(address), to.size()};
    const ssize_t got = process_vm_readv(pid_, &here, 1, &there, 1, 0);
    if (got == static_cast<ssize_t>(to.size())) {
      return true;
    }
  }
  while (!to.empty()) {
    const ssize_t got = pread(memory_.get(), to.data(), to.size(), static_cast<off_t>(address));
    if (got <= 0) {
      return false;
    }
    address += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool ProcessMemory::copy_out(std::uint64_t address, ByteView from) {
  if (from.size() >= kLongBytes && is_there(address)) {
    const iovec here{const_cast<std::uint8_t*>(from.data()), from.size()};
    const iovec there{reinterpret_cast<void*>(address), from.size()};
    const ssize_t put = process_vm_writev(pid_, &here, 1, &there, 1, 0);
    if (put == static_cast<ssize_t>(from.size())) {
      return true;
    }
  }
  while (!from.empty()) {
    const ssize_t put =
        pwrite(memory_.get(), from.data(), from.size(), static_cast<off_t>(address));
    if (put <= 0) {
      return false;
    }
    address += static_cast<std::uint64_t>(put);
    from = from.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

bool ProcessMemory::fetch_add(std::uint64_t address, std::uint64_t addend,
                              std::uint64_t& original) {
  std::uint64_t word = 0;
  if (!copy_in(address, bytes_of_word(word))) {
    return false;
  }
  original = word;
  word += addend;
  return copy_out(address, bytes_of_word(word));
}

bool ProcessMemory::compare_swap(std::uint64_t address, std::uint64_t compare, std::uint64_t swap,
                                 std::uint64_t& original) {
  std::uint64_t word = 0;
  if (!copy_in(address, bytes_of_word(word))) {
    return false;
  }
  original = word;
  if (word != compare) {
    return true;
  }
  word = swap;
  return copy_out(address, bytes_of_word(word));
}

}  // namespace softhca
