// The system calls that a program's RDMA libraries make, by architecture: one table for the filter,
// which decides what the kernel shall ask us about, and for the listener, which answers.
#pragma once

#include <cstdint>
#include <span>

namespace softhca {

enum class SystemCall : std::uint8_t {
  open,
  openat,
  openat2,
  stat,
  lstat,
  newfstatat,
  fstat,
  statx,
  access,
  faccessat,
  faccessat2,
  readlink,
  readlinkat,
  getxattr,
  listxattr,
  ioctl,
  write,
  dup,
  fcntl,
  socket,
};

// When the kernel asks. A filter sees numbers, and cannot look behind pointers.
enum class Trigger : std::uint8_t {
  always,
  at_cwd,             // Its directory is AT_FDCWD or no descriptor, so that the path decides.
  at_cwd_or_ours,     // Or the descriptor itself is meant, and it is in our range.
  ours,               // Its descriptor is in our range.
  rdma_request,       // ioctl(2) with RDMA_VERBS_IOCTL, whatever the descriptor.
  duplicate_of_ours,  // fcntl(2) with F_DUPFD or F_DUPFD_CLOEXEC, of our range.
  rdma_netlink,       // Never asked: refused by the filter with EPROTONOSUPPORT.
};

struct SystemCallRule {
  std::uint32_t number;
  SystemCall call;
  Trigger trigger;
};

struct Architecture {
  std::uint32_t audit;                    // AUDIT_ARCH_*
  std::uint32_t first_foreign_number;     // From here on another ABI begins, such as x32.
  std::span<const SystemCallRule> rules;  // The most frequent first.
};

extern const Architecture kX86_64;
extern const Architecture kArm64;

// The one that this library is built for; nullptr if it is none of them.
const Architecture* native_architecture();

inline constexpr std::uint32_t kRdmaVerbsIoctl = 0xC0181B01;

}  // namespace softhca
