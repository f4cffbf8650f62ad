#include "uabi/system_calls.hpp"

#include "uabi/seccomp_abi.hpp"

namespace softhca {
namespace {

constexpr std::uint32_t kNoForeignNumber = 0xFFFFFFFF;
constexpr std::uint32_t kX32Bit = 0x40000000;

using enum SystemCall;
using enum Trigger;

constexpr SystemCallRule kX86_64Rules[] = {
    {1, SystemCall::write, ours},
    {16, SystemCall::ioctl, rdma_request},
    {257, openat, at_cwd},
    {262, newfstatat, at_cwd_or_ours},
    {72, SystemCall::fcntl, duplicate_of_ours},
    {5, SystemCall::fstat, ours},
    {332, SystemCall::statx, at_cwd_or_ours},
    {2, SystemCall::open, always},
    {4, SystemCall::stat, always},
    {6, SystemCall::lstat, always},
    {21, SystemCall::access, always},
    {269, SystemCall::faccessat, at_cwd},
    {439, faccessat2, at_cwd},
    {89, SystemCall::readlink, always},
    {267, SystemCall::readlinkat, at_cwd},
    {191, SystemCall::getxattr, always},
    {192, SystemCall::getxattr, always},  // lgetxattr
    {194, SystemCall::listxattr, always},
    {195, SystemCall::listxattr, always},  // llistxattr
    {32, SystemCall::dup, ours},
    {41, SystemCall::socket, rdma_netlink},
    {437, openat2, at_cwd},
};

constexpr SystemCallRule kArm64Rules[] = {
    {64, SystemCall::write, ours},
    {29, SystemCall::ioctl, rdma_request},
    {56, openat, at_cwd},
    {79, newfstatat, at_cwd_or_ours},
    {25, SystemCall::fcntl, duplicate_of_ours},
    {80, SystemCall::fstat, ours},
    {291, SystemCall::statx, at_cwd_or_ours},
    {48, SystemCall::faccessat, at_cwd},
    {439, faccessat2, at_cwd},
    {78, SystemCall::readlinkat, at_cwd},
    {8, SystemCall::getxattr, always},
    {9, SystemCall::getxattr, always},  // lgetxattr
    {11, SystemCall::listxattr, always},
    {12, SystemCall::listxattr, always},  // llistxattr
    {23, SystemCall::dup, ours},
    {198, SystemCall::socket, rdma_netlink},
    {437, openat2, at_cwd},
};

}  // namespace

constexpr Architecture kX86_64 = {AUDIT_ARCH_X86_64, kX32Bit, kX86_64Rules};
constexpr Architecture kArm64 = {AUDIT_ARCH_AARCH64, kNoForeignNumber, kArm64Rules};

const Architecture* native_architecture() {
#if defined(__x86_64__) && defined(__LP64__)
  return &kX86_64;
#elif defined(__aarch64__)
  return &kArm64;
#else
  return nullptr;
#endif
}

}  // namespace softhca
