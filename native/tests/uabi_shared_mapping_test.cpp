// Memory of a program that is mapped here too.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "link/file_descriptor.hpp"
#include "tests/check.hpp"
#include "uabi/shared_mapping.hpp"

namespace softhca::testing {
namespace {

// Some pages, also where they are of 64 KiB.
constexpr std::uint64_t kLength = 256 * 1024;

TEST("uabi shared mapping: what is written is in the file, from any offset") {
  const FileDescriptor file(memfd_create("shared", MFD_CLOEXEC));
  CHECK(ftruncate(file.get(), kLength) == 0);
  const auto made = SharedMapping::make(file.get(), 5001, 20'000, true);
  CHECK(made.ok());
  SharedMapping& space = *made.value;
  CHECK(space.is_direct());
  const std::vector<std::uint8_t> bytes(20'000, 7);
  CHECK(space.copy_out(space.address(), bytes));
  std::vector<std::uint8_t> read(kLength);
  CHECK_EQ(pread(file.get(), read.data(), kLength, 0), static_cast<ssize_t>(kLength));
  CHECK_EQ(read[5000], 0);
  CHECK_EQ(read[5001], 7);
  CHECK_EQ(read[25'000], 7);
  CHECK_EQ(read[25'001], 0);
  const std::uint64_t word = (space.address() + 7) / 8 * 8;
  std::uint64_t original = 0;
  CHECK(space.fetch_add(word, 1, original));
  CHECK_EQ(original, 0x0707070707070707u);
  CHECK(space.compare_swap(word, 0x0707070707070708u, 9, original));
  CHECK(space.fetch_add(word, 0, original));
  CHECK_EQ(original, 9u);
}

TEST("uabi shared mapping: a file that is cut short is a false, never a signal") {
  const FileDescriptor file(memfd_create("shared", MFD_CLOEXEC));
  CHECK(ftruncate(file.get(), kLength) == 0);
  const auto made = SharedMapping::make(file.get(), 0, kLength, true);
  CHECK(made.ok());
  std::array<std::uint8_t, 8> some{};
  const std::uint64_t late = made.value->address() + kLength - 8;
  CHECK(made.value->copy_in(late, some));
  CHECK(ftruncate(file.get(), 4096) == 0);
  std::uint64_t original = 0;
  CHECK(!made.value->copy_in(late, some));
  CHECK(!made.value->copy_out(late, some));
  CHECK(!made.value->fetch_add(late, 1, original));
  CHECK(made.value->copy_in(made.value->address(), some));
}

TEST("uabi shared mapping: what may not be written is read, and what is no memory is refused") {
  const FileDescriptor file(memfd_create("shared", MFD_CLOEXEC));
  CHECK(ftruncate(file.get(), kLength) == 0);
  const auto made = SharedMapping::make(file.get(), 0, kLength, false);
  CHECK(made.ok());
  std::array<std::uint8_t, 8> some{};
  CHECK(made.value->copy_in(made.value->address(), some));
  CHECK(!made.value->copy_out(made.value->address(), some));
  const FileDescriptor other(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  CHECK_EQ(SharedMapping::make(other.get(), 0, 4096, false).status.error, EOPNOTSUPP);
  CHECK_EQ(SharedMapping::make(file.get(), 0, 0, true).status.error, EINVAL);
  CHECK_EQ(SharedMapping::make(file.get(), 1, ~std::uint64_t{0}, true).status.error, EINVAL);
  CHECK_EQ(SharedMapping::make(-1, 0, 1, true).status.error, EBADF);
}

}  // namespace
}  // namespace softhca::testing
