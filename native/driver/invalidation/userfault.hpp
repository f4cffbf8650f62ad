// Changes of this process's own mappings, as userfaultfd tells them (ioctl_userfaultfd(2)).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "link/file_descriptor.hpp"
#include "memory/gone_ranges.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// How a mapping changed. The numbers are those of UFFD_EVENT_*.
enum class ChangeKind : std::uint8_t {
  REMAP = 0x14,   // mremap moved it away.
  REMOVE = 0x15,  // madvise dropped its content: DONTNEED, REMOVE, FREE.
  UNMAP = 0x16,   // munmap, a mapping put over it, brk.
};

struct MappingChange {
  ChangeKind kind = ChangeKind::UNMAP;
  AddressRange range;
  std::uint64_t moved_to = 0;  // REMAP: where it is now, still watched.
};

// A userfaultfd that delays no page fault and reports changes of the ranges it watches. A thread
// that changes one waits in its system call until the change is read.
class Userfault {
 public:
  static constexpr std::size_t kMaxChanges = 32;

  // EOPNOTSUPP, with what is missing, where the kernel or a sandbox does not let it.
  Status open();
  int fd() const { return fd_.get(); }

  // Whole pages. Repeating it does no harm.
  Status watch(const AddressRange& pages);
  // What is not mapped or not watched by us is passed over.
  void unwatch(const AddressRange& pages);

  // Whether a thread is changing what we watch: its change may have been made, and not been told.
  bool is_changing() const;

  // Takes changes without waiting, and lets their threads go; returns how many. Allocates nothing.
  std::size_t read(std::array<MappingChange, kMaxChanges>& changes);

 private:
  FileDescriptor fd_;
};

}  // namespace softhca
