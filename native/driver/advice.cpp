#include "driver/advice.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace softhca {
namespace {

constexpr std::uint64_t kPageMask = 4095;
// Newer than the headers of some systems.
constexpr std::uint32_t kPopulateRead = 22;
constexpr std::uint32_t kPopulateWrite = 23;

}  // namespace

Status advise_memory(std::uint64_t address, std::uint64_t length, std::uint32_t advice) {
  std::uint64_t start = address;
  std::uint64_t end = address + length;
  switch (advice) {
    case MADV_WILLNEED:
    case kPopulateRead:
    case kPopulateWrite:
      start &= ~kPageMask;
      end = (end + kPageMask) & ~kPageMask;
      break;
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
      start = (start + kPageMask) & ~kPageMask;
      end &= ~kPageMask;
      break;
    default:
      return refuse(EINVAL, "advice", advice, "is none that leaves the content as it is");
  }
  if (length == 0 || start >= end) return Status::success();
  if (madvise(reinterpret_cast<void*>(start), end - start, static_cast<int>(advice)) != 0) {
    return refuse(errno, "advice", advice, "is refused by the kernel for this memory");
  }
  return Status::success();
}

}  // namespace softhca
