#include "uabi/path_arguments.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "uabi/task_memory.hpp"

namespace softhca {
namespace {

// Of statx(2), for later versions of its structure.
constexpr std::uint64_t kReservedOfMask = 0x80000000;
constexpr std::uint32_t kSyncType = AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC;
constexpr std::uint32_t kStatFlags =
    AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | kSyncType;
constexpr std::uint32_t kAccessFlags = AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
constexpr std::uint32_t kAccessModes = R_OK | W_OK | X_OK;

// VALID_OPEN_FLAGS. What O_SYNC and O_TMPFILE consist of besides has no name of its own;
// O_LARGEFILE is 0 to 64-bit programs, which may pass the kernel's all the same.
#if defined(__aarch64__)
constexpr std::uint64_t kLargeFile = 0400000;
#else
constexpr std::uint64_t kLargeFile = 0100000;
#endif
constexpr std::uint64_t kOpenFlags = O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND |
                                     O_NONBLOCK | O_SYNC | O_DSYNC | O_ASYNC | O_DIRECT |
                                     O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC | O_PATH |
                                     O_TMPFILE | kLargeFile;
constexpr std::uint64_t kTemporary = O_TMPFILE & ~O_DIRECTORY;
constexpr std::uint64_t kFlagsBesidePath = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr std::uint64_t kModeBits = 07777;

// How the path is looked up; the first ones forbid to leave where it begins.
constexpr std::uint64_t kStaysThere = RESOLVE_BENEATH | RESOLVE_IN_ROOT | RESOLVE_NO_XDEV;
constexpr std::uint64_t kLookups =
    kStaysThere | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_CACHED;
constexpr std::uint64_t kMostBytes = 4096;  // PAGE_SIZE, where that is smallest.

bool is_zero(pid_t task, std::uint64_t address, std::size_t length) {
  std::uint8_t bytes[kMostBytes];
  return read_task(task, address, bytes, length) == length &&
         std::all_of(bytes, bytes + length, [](std::uint8_t byte) { return byte == 0; });
}

// Of any kind of open: what is to be made is no directory, and a file without a name is written.
bool contradicts(std::uint64_t flags) {
  const bool is_temporary = (flags & kTemporary) != 0;
  return (flags & O_PATH) == 0 &&
         ((flags & (O_CREAT | O_DIRECTORY)) == (O_CREAT | O_DIRECTORY) ||
          (is_temporary && ((flags & O_DIRECTORY) == 0 || (flags & O_ACCMODE) == O_RDONLY)));
}

bool is_wrong(const open_how& how) {
  constexpr std::uint64_t kOneOfTwo = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
  const bool makes = (how.flags & (O_CREAT | kTemporary)) != 0;
  return contradicts(how.flags) || (how.flags & ~kOpenFlags) != 0 ||
         (how.resolve & ~kLookups) != 0 || (how.resolve & kOneOfTwo) == kOneOfTwo ||
         (how.mode & ~(makes ? kModeBits : 0)) != 0 ||
         ((how.flags & O_PATH) != 0 && (how.flags & ~kFlagsBesidePath) != 0);
}

bool decides_openat2(const Notification& call) {
  const std::uint64_t address = call.arguments[2];
  const std::uint64_t size = call.arguments[3];
  open_how how{};
  if (size < sizeof(how) || size > kMostBytes ||
      read_task(call.task, address, &how, sizeof(how)) != sizeof(how)) {
    return true;
  }
  char first = 0;
  return is_wrong(how) || read_task(call.task, call.arguments[1], &first, 1) != 1 ||
         (first == '/' && (how.resolve & kStaysThere) != 0) ||
         !is_zero(call.task, address + sizeof(how), size - sizeof(how));
}

}  // namespace

bool is_decided_without_path(const Notification& call) {
  const auto narrow = [&](std::size_t at) {
    return static_cast<std::uint32_t>(call.arguments[at]);
  };
  switch (call.call) {
    case SystemCall::open:
      return contradicts(call.arguments[1]);
    case SystemCall::openat:
      return contradicts(call.arguments[2]);
    case SystemCall::newfstatat:
      return (narrow(3) & ~kStatFlags) != 0;
    case SystemCall::statx:
      return (narrow(2) & ~kStatFlags) != 0 || (narrow(2) & kSyncType) == kSyncType ||
             (narrow(3) & kReservedOfMask) != 0;
    case SystemCall::access:
      return (narrow(1) & ~kAccessModes) != 0;
    case SystemCall::faccessat2:
      if ((narrow(3) & ~kAccessFlags) != 0) return true;
      [[fallthrough]];
    case SystemCall::faccessat:
      return (narrow(2) & ~kAccessModes) != 0;
    case SystemCall::openat2:
      return decides_openat2(call);
    default:
      return false;
  }
}

}  // namespace softhca
