// Huge pages under what is copied often: when one is worth it, and that the kernel makes it.
#include "memory/often_copied.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "link/file_descriptor.hpp"
#include "tests/check.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint64_t kHuge = 2u << 20;
constexpr std::uint64_t kPiece = 128u << 10;
constexpr std::uint64_t kPage = 7 * kHuge;  // Any.
constexpr int kCollapse = 25;

// Copies the page so often, piece by piece; returns how many pieces it took until it was due.
std::uint64_t pieces_until_due(OftenCopied& often, std::uint64_t memory, std::uint64_t most) {
  for (std::uint64_t count = 1; count <= most; ++count) {
    const std::uint64_t at = kPage + (count - 1) * kPiece % kHuge;
    const std::optional<std::uint64_t> due = often.note(memory, at, kPiece);
    if (!due) continue;
    CHECK_EQ(*due, kPage);
    return count;
  }
  return 0;
}

constexpr std::uint64_t kFirst = OftenCopied::kCopies * kHuge / kPiece;

TEST("often copied: a huge page is due once, and again when much more was copied") {
  OftenCopied often(kHuge);
  CHECK_EQ(pieces_until_due(often, 1, 2 * kFirst), kFirst);
  // While somebody tries, and where nobody ever says what came of it.
  CHECK_EQ(pieces_until_due(often, 1, 100 * kFirst), 0u);

  OftenCopied made(kHuge);
  pieces_until_due(made, 1, kFirst);
  made.tried(1, kPage, true);
  const std::uint64_t again = OftenCopied::kCopiesUntilNext * kHuge / kPiece;
  CHECK_EQ(pieces_until_due(made, 1, 2 * again), again);

  OftenCopied failed(kHuge);
  pieces_until_due(failed, 1, kFirst);
  failed.tried(1, kPage, false);
  const std::uint64_t later = (OftenCopied::kLongerAfterFailure - 1) * kFirst;
  CHECK_EQ(pieces_until_due(failed, 1, 2 * later), later);
}

TEST("often copied: each memory and each page has a count of its own") {
  OftenCopied often(kHuge);
  // Half of each copy in either page, so that both take twice as many.
  std::vector<std::uint64_t> due;
  for (std::uint64_t count = 0; count < 2 * kFirst; ++count) {
    const auto page = often.note(1, kPage + kHuge - kPiece / 2, kPiece);
    if (page) due.push_back(*page);
    CHECK(!often.note(2, kPage, kPiece / 4));
  }
  // One at a time.
  if (const auto page = often.note(1, kPage + kHuge - kPiece / 2, kPiece)) due.push_back(*page);
  CHECK_EQ(due, (std::vector<std::uint64_t>{kPage, kPage + kHuge}));
}

// A mapping of small pages, all there, with a whole huge page somewhere in it.
class Memory {
 public:
  explicit Memory(std::uint64_t huge_bytes)
      : bytes_(2 * huge_bytes),
        at_(static_cast<std::uint8_t*>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    CHECK(at_ != MAP_FAILED);
    const auto address = reinterpret_cast<std::uintptr_t>(at_);
    page_ = at_ + (huge_bytes - address % huge_bytes) % huge_bytes;
    touch();
  }
  ~Memory() { munmap(at_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void touch() const {
    for (std::uint64_t i = 0; i < bytes_; i += 4096) at_[i] = static_cast<std::uint8_t>(i >> 12);
  }
  bool is_touched() const {
    for (std::uint64_t i = 0; i < bytes_; i += 4096) {
      if (at_[i] != static_cast<std::uint8_t>(i >> 12)) return false;
    }
    return true;
  }
  std::uint8_t* page() const { return page_; }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(page_); }

 private:
  std::uint64_t bytes_;
  std::uint8_t* at_;
  std::uint8_t* page_;
};

// Whether there is a huge page at this address.
bool is_huge(pid_t process, std::uint64_t address) {
  std::ifstream smaps("/proc/" + std::to_string(process) + "/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long start = 0;
    unsigned long long end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &start, &end) == 2) {
      inside = start <= address && address < end;
    } else if (inside && line.starts_with("AnonHugePages:")) {
      return line.find(" 0 kB") == std::string::npos;
    }
  }
  return false;
}

// What the kernel can do here, or why not.
bool kernel_makes_huge_pages(std::uint64_t bytes) {
  const char* why = nullptr;
  if (bytes == 0) {
    why = "huge pages are switched off here, or unknown";
  } else {
    const Memory tried(bytes);
    if (madvise(tried.page(), bytes, kCollapse) != 0) why = "the kernel makes no huge page here";
  }
  if (why != nullptr) std::printf("skipped: %s\n", why);
  return why == nullptr;
}

TEST("often copied: own memory that peers fetch again and again lies in a huge page then") {
  const std::uint64_t bytes = huge_page_bytes();
  if (!kernel_makes_huge_pages(bytes)) return;
  const Memory memory(bytes);
  for (std::uint64_t count = 0; count < OftenCopied::kCopies; ++count) {
    note_own_copy(memory.address(), bytes);
  }
  CHECK(is_huge(getpid(), memory.address()));
  CHECK(memory.is_touched());
}

bool may_make_huge_pages(pid_t process, std::uint64_t address, std::uint64_t bytes) {
  const FileDescriptor pidfd(static_cast<int>(syscall(434, process, 0)));
  const iovec page{reinterpret_cast<void*>(address), bytes};
  if (syscall(440, pidfd.get(), &page, 1, kCollapse, 0) >= 0 || errno != EPERM) return true;
  std::printf("skipped: no huge pages for other processes without CAP_SYS_NICE\n");
  return false;
}

TEST("often copied: memory of another process does, where we may, and keeps its bytes") {
  const std::uint64_t bytes = huge_page_bytes();
  if (!kernel_makes_huge_pages(bytes)) return;
  // In parent and child alike: the child writes to it, and so has pages of its own.
  const Memory memory(bytes);
  int pipes[2];
  CHECK_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    memory.touch();
    std::uint8_t byte = 0;
    static_cast<void>(write(pipes[1], &byte, 1));
    for (;;) pause();
  }
  std::uint8_t byte;
  CHECK_EQ(read(pipes[0], &byte, 1), 1);
  ::close(pipes[0]);
  ::close(pipes[1]);
  const std::string path = "/proc/" + std::to_string(child) + "/mem";
  const FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  const ForeignMemory foreign{child, file.get(), -1, next_foreign_number(), {}};
  std::vector<std::uint8_t> copy(bytes);
  bool copied = file.is_open();
  for (std::uint64_t count = 0; copied && count < OftenCopied::kCopies; count += 2) {
    copied = read_foreign(foreign, memory.address(), copy) &&
             write_foreign(foreign, memory.address(), copy);
  }
  const bool huge = is_huge(child, memory.address());
  const bool same = copied && std::equal(copy.begin(), copy.end(), memory.page());
  const bool may_be = may_make_huge_pages(child, memory.address(), bytes);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(copied);
  CHECK(same);
  if (may_be) CHECK(huge);
}

}  // namespace
}  // namespace softhca::testing
