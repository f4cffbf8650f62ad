// The memory of another process, as it was when its program opened the device.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>

#include "link/file_descriptor.hpp"
#include "memory/address_space.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// See memory/foreign_memory.hpp for how it is reached. Like hardware with its pinned pages it does
// not heed protections that were changed after registration.
//
// Atomics are atomic with respect to every other access by the same adapter (IBV_ATOMIC_HCA), whose
// lock is held, and not to stores of the program's processors.
class ProcessMemory final : public AddressSpace {
 public:
  // ESRCH: no such process. EACCES or EPERM: its memory may not be reached (Yama's ptrace_scope, or
  // another user's process). `task`: a thread of it that runs; the first one may have ended.
  static Result<std::shared_ptr<ProcessMemory>> open(pid_t pid, pid_t task);
  static Result<std::shared_ptr<ProcessMemory>> open(pid_t pid) { return open(pid, pid); }

  bool is_gone() const override { return foreign_is_gone(foreign_); }
  const ForeignMemory* foreign() const override { return &foreign_; }
  bool copy_in(std::uint64_t address, ByteSpan to) override;
  bool copy_out(std::uint64_t address, ByteView from) override;
  bool copy_out_all(std::uint64_t address, std::span<const ByteView> from) override;
  bool fetch_add(std::uint64_t address, std::uint64_t addend, std::uint64_t& original) override;
  bool compare_swap(std::uint64_t address, std::uint64_t compare, std::uint64_t swap,
                    std::uint64_t& original) override;

  // Readable once the process has ended.
  int pidfd() const { return process_.get(); }

 private:
  FileDescriptor process_;
  FileDescriptor memory_;
  FileDescriptor lent_;
  ForeignMemory foreign_;
};

}  // namespace softhca
