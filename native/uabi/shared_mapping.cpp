#include "uabi/shared_mapping.hpp"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

namespace softhca {

Result<std::shared_ptr<SharedMapping>> SharedMapping::make(int file, std::uint64_t offset,
                                                           std::uint64_t length, bool writable) {
  struct statfs system {};
  if (fstatfs(file, &system) != 0) return refuse(errno, "file", 0, "has no file system");
  const bool huge = system.f_type == HUGETLBFS_MAGIC;
  if (!huge && system.f_type != TMPFS_MAGIC) {
    return refuse(EOPNOTSUPP, "file", static_cast<std::uint64_t>(system.f_type),
                  "is not a file in memory");
  }
  // Of a file of huge pages, whole ones are mapped.
  const auto page = static_cast<std::uint64_t>(huge ? system.f_bsize : sysconf(_SC_PAGESIZE));
  const std::uint64_t into = offset % page;
  if (length == 0 || length > ~std::uint64_t{0} - into - page) {
    return refuse(EINVAL, "length", length, "is none of a file");
  }
  const std::uint64_t bytes = (into + length + page - 1) / page * page;
  void* begin = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                     file, static_cast<off_t>(offset - into));
  if (begin == MAP_FAILED) return refuse(errno, "file", 0, "cannot be mapped");
  process_space();  // Its guard, before the first access.
  return std::shared_ptr<SharedMapping>(
      new SharedMapping(begin, bytes, reinterpret_cast<std::uintptr_t>(begin) + into));
}

SharedMapping::~SharedMapping() { munmap(begin_, bytes_); }

}  // namespace softhca
