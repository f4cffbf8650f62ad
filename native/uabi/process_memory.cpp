#include "uabi/process_memory.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace softhca {
namespace {

Status refuse_process(pid_t pid, const char* rule) {
  return refuse(errno, "pid", static_cast<std::uint64_t>(pid), rule);
}

ByteSpan bytes_of_word(std::uint64_t& word) {
  return {reinterpret_cast<std::uint8_t*>(&word), sizeof word};
}

}  // namespace

Result<std::shared_ptr<ProcessMemory>> ProcessMemory::open(pid_t pid, pid_t task) {
  auto opened = std::make_shared<ProcessMemory>();
  opened->process_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!opened->process_.is_open()) {
    return refuse_process(pid, "names no process");
  }
  const std::string path =
      "/proc/" + std::to_string(pid) + "/task/" + std::to_string(task) + "/mem";
  opened->lent_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  opened->memory_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened->memory_.is_open() || !opened->lent_.is_open()) {
    return refuse_process(pid, "does not let its memory be reached");
  }
  // As long as the process is there, its number was nobody else's when the file was opened.
  if (syscall(SYS_pidfd_send_signal, opened->process_.get(), 0, nullptr, 0) != 0) {
    return refuse_process(pid, "has ended");
  }
  opened->foreign_ = {pid, opened->memory_.get(), opened->lent_.get(), next_foreign_number(),
                      opened};
  // An exec in between: the two are not of the same program.
  if (foreign_is_gone({.file = opened->lent_.get(), .life = {}})) {
    errno = ESRCH;
    return refuse_process(pid, "has begun another program");
  }
  return opened;
}

bool ProcessMemory::copy_in(std::uint64_t address, ByteSpan to) {
  return read_foreign(foreign_, address, to);
}

bool ProcessMemory::copy_out(std::uint64_t address, ByteView from) {
  return write_foreign(foreign_, address, from);
}

bool ProcessMemory::copy_out_all(std::uint64_t address, std::span<const ByteView> from) {
  return write_foreign(foreign_, address, from);
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
