#include "driver/advice.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "vocabulary/page_bytes.hpp"

namespace softhca {
namespace {

// Newer than the headers of some systems.
constexpr std::uint32_t kPopulateRead = 22;
constexpr std::uint32_t kPopulateWrite = 23;

}  // namespace

Result<AddressRange> advised_pages(const AddressRange& range, std::uint32_t advice,
                                   std::uint64_t page_bytes) {
  switch (advice) {
    case MADV_WILLNEED:
    case kPopulateRead:
    case kPopulateWrite:
      return pages_around(range, page_bytes);
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
      return pages_within(range, page_bytes);
    default:
      return refuse(EINVAL, "advice", advice, "is none that leaves the content as it is");
  }
}

Status advise_memory(std::uint64_t address, std::uint64_t length, std::uint32_t advice) {
  const Result<AddressRange> advised =
      advised_pages({address, address + length}, advice, page_bytes());
  if (!advised.ok()) return advised.status;
  const AddressRange& pages = advised.value;
  if (length == 0 || pages.empty()) return Status::success();
  if (madvise(reinterpret_cast<void*>(pages.start), pages.end - pages.start,
              static_cast<int>(advice)) != 0) {
    return refuse(errno, "advice", advice, "is refused by the kernel for this memory");
  }
  return Status::success();
}

}  // namespace softhca
