// Which pages advice is given for, whatever the size of pages of the kernel that the test runs on.

#include <sys/mman.h>

#include <cerrno>

#include "driver/advice.hpp"
#include "tests/check.hpp"

namespace softhca::testing {
namespace {

TEST("advice: whole pages, of whatever size they are") {
  const AddressRange range{0x40001, 0x6fff0};
  for (const std::uint64_t page : {0x1000, 0x4000, 0x10000}) {
    const Result<AddressRange> around = advised_pages(range, MADV_WILLNEED, page);
    const Result<AddressRange> within = advised_pages(range, MADV_DONTFORK, page);
    CHECK(around.ok() && within.ok());
    CHECK_EQ(around.value.start, 0x40000u);
    CHECK_EQ(around.value.end, 0x70000u);
    CHECK_EQ(within.value.start, 0x40000u + page);
    CHECK_EQ(within.value.end, 0x70000u - page);
  }
}

TEST("advice: neighbours on a page are left alone") {
  const AddressRange range{0x40001, 0x42000};
  CHECK(!advised_pages(range, MADV_DONTFORK, 0x1000).value.empty());
  CHECK(advised_pages(range, MADV_DONTFORK, 0x4000).value.empty());
  CHECK_EQ(advised_pages(range, MADV_DONTNEED, 0x4000).status.error, EINVAL);
}

}  // namespace
}  // namespace softhca::testing
