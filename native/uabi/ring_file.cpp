#include "uabi/ring_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace softhca {
namespace {

// Queues, and as much for doorbells.
constexpr std::uint64_t kFileBytes = 2 * RingFile::kQueueBytes;

}  // namespace

Result<std::shared_ptr<RingFile>> RingFile::make() {
  auto made = std::make_shared<RingFile>();
  made->file_.reset(memfd_create("uverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = made->file_.get();
  // Sealed, so that a program cannot take pages of it away from under us.
  struct stat status {};
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(kFileBytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      fstat(fd, &status) != 0) {
    return refuse(errno, "file", kFileBytes, "cannot be made");
  }
  made->inode_ = status.st_ino;
  return made;
}

Result<std::uint64_t> RingFile::allocate(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t rounded = (bytes + page - 1) / page * page;
  const std::lock_guard lock(mutex_);
  if (bytes > kQueueBytes || rounded > kQueueBytes - end_) {
    return refuse(ENOMEM, "bytes", bytes, "the file has no more room");
  }
  const std::uint64_t offset = end_;
  end_ += rounded;
  return offset;
}

void RingFile::free(std::uint64_t offset, std::uint64_t bytes) {
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

// Where data begins is looked up under the lock of the inode, which writers hold. The position that
// this moves is of a description that nobody writes with.
void RingFile::wait_for_writer() const { lseek(file_.get(), 0, SEEK_DATA); }

}  // namespace softhca
