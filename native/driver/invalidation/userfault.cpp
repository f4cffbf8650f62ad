#include "driver/invalidation/userfault.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace softhca {
namespace {

// Newer than the headers of some systems that run a newer kernel.
constexpr int kUserModeOnly = 1;
constexpr std::uint64_t kFeatureWriteProtectAsync = std::uint64_t{1} << 15;

constexpr std::uint64_t kFeatures = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                                    UFFD_FEATURE_EVENT_UNMAP | kFeatureWriteProtectAsync;
constexpr std::uint64_t kModeWriteProtect = 2;

// What it makes is the same, for whoever may open the file (Linux 6.1).
constexpr const char* kDevice = "/dev/userfaultfd";
constexpr unsigned long kNewFromDevice = _IO(0xAA, 0x00);

// Container runtimes refuse the call to whoever is not privileged, but can be told to give the
// container the device. The errno is the call's.
int make_descriptor() {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK | kUserModeOnly;
  const long fd = syscall(SYS_userfaultfd, kFlags);
  if (fd >= 0 || (errno != EPERM && errno != ENOSYS)) return static_cast<int>(fd);
  const int error = errno;
  const FileDescriptor device(::open(kDevice, O_RDWR | O_CLOEXEC));
  const int made = device.is_open() ? ioctl(device.get(), kNewFromDevice, kFlags) : -1;
  errno = error;
  return made;
}

}  // namespace

Status Userfault::open() {
  const int fd = make_descriptor();
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      return refuse(errno, "invalidation", 0, "no descriptor or memory is left for userfaultfd");
    }
    return refuse(EOPNOTSUPP, "invalidation", 0,
                  "needs userfaultfd(2), which this kernel has not or a sandbox (seccomp) forbids; "
                  "a container is given it by `docker run --device /dev/userfaultfd`");
  }
  fd_.reset(fd);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kFeatures;
  if (ioctl(fd_.get(), UFFDIO_API, &api) != 0 || (api.features & kFeatures) != kFeatures) {
    fd_.reset();
    return refuse(EOPNOTSUPP, "invalidation", 0,
                  "needs UFFD_FEATURE_WP_ASYNC of userfaultfd: Linux 6.7 or newer, on arm64 6.10");
  }
  return Status::success();
}

Status Userfault::watch(const AddressRange& pages) {
  uffdio_register request{};
  request.range = {pages.start, pages.end - pages.start};
  request.mode = kModeWriteProtect;
  if (ioctl(fd_.get(), UFFDIO_REGISTER, &request) == 0) return Status::success();
  switch (errno) {
    case EBUSY:
      return refuse(EBUSY, "addr", pages.start,
                    "another userfaultfd of the program watches this memory");
    case EPERM:
      return refuse(EACCES, "addr", pages.start,
                    "cannot watch a shared mapping of a file that was opened read-only: map it "
                    "privately, or open it for writing");
    case ENOMEM:
      return refuse(ENOMEM, "addr", pages.start,
                    "is mapped nowhere, or would need more mappings than vm.max_map_count");
    default:
      return refuse(EFAULT, "addr", pages.start, "no memory that can be watched is mapped there");
  }
}

void Userfault::unwatch(const AddressRange& pages) {
  uffdio_range range{pages.start, pages.end - pages.start};
  // EINVAL: unmapped meanwhile, or somebody else's by now.
  static_cast<void>(ioctl(fd_.get(), UFFDIO_UNREGISTER, &range));
}

// The kernel fills no page while mappings change, and looks at that before it looks at the request,
// which is for no page.
bool Userfault::is_changing() const {
  uffdio_zeropage nothing{};
  return ioctl(fd_.get(), UFFDIO_ZEROPAGE, &nothing) != 0 && errno == EAGAIN;
}

std::size_t Userfault::read(std::array<MappingChange, kMaxChanges>& changes) {
  uffd_msg messages[kMaxChanges];
  const ssize_t bytes = ::read(fd_.get(), messages, sizeof messages);
  if (bytes <= 0) return 0;
  std::size_t count = 0;
  for (std::size_t at = 0; at < static_cast<std::size_t>(bytes) / sizeof(uffd_msg); ++at) {
    const uffd_msg& message = messages[at];
    MappingChange& change = changes[count];
    change = {};
    change.kind = static_cast<ChangeKind>(message.event);
    switch (message.event) {
      case UFFD_EVENT_REMAP: {
        const auto& remap = message.arg.remap;
        change.range = {remap.from, remap.from + remap.len};
        change.moved_to = remap.to;
        break;
      }
      case UFFD_EVENT_REMOVE:
      case UFFD_EVENT_UNMAP:
        change.range = {message.arg.remove.start, message.arg.remove.end};
        break;
      default:
        continue;
    }
    ++count;
  }
  return count;
}

}  // namespace softhca
