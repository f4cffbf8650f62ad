#include "neighbour/shared_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace softhca {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

SharedSegment::~SharedSegment() {
  if (layout_ != nullptr) munmap(layout_, sizeof(SegmentLayout));
}

int SharedSegment::map() {
  void* at = mmap(nullptr, sizeof(SegmentLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) return errno;
  layout_ = static_cast<SegmentLayout*>(at);
  return 0;
}

int SharedSegment::create() {
  fd_.reset(memfd_create("softhca-neighbour", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_.is_open() || ftruncate(fd_.get(), sizeof(SegmentLayout)) != 0 ||
      fcntl(fd_.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return errno;
  }
  return map();
}

int SharedSegment::adopt(FileDescriptor&& fd) {
  struct stat status;
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd.get(), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != sizeof(SegmentLayout)) {
    return EINVAL;
  }
  fd_ = std::move(fd);
  return map();
}

void SharedSegment::abandon() {
  fd_.reset();
  layout_ = nullptr;
}

}  // namespace softhca
