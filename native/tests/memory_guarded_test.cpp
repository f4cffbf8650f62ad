// The routines that touch user memory: what they move, and where they fault.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "memory/guarded_access.hpp"
#include "memory/guarded_routines.hpp"
#include "tests/check.hpp"

namespace softhca::testing {
namespace {

// Two pages, behind which nothing can be reached.
struct Pages {
  Pages() {
    install_fault_guard();
    page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* all = mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = static_cast<std::uint8_t*>(all);
    end = at + 2 * page;
    CHECK_EQ(mprotect(end, page, PROT_NONE), 0);
  }
  ~Pages() { munmap(at, 3 * page); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::size_t page = 0;
  std::uint8_t* at = nullptr;
  std::uint8_t* end = nullptr;
};

// Both ways of copying much: that of processors and that of emulators.
template <class Work>
void in_either_way(Work work) {
  install_fault_guard();
#if defined(__x86_64__)
  const std::size_t here = softhca_string_bytes;
  for (const std::size_t bytes : {std::size_t{256}, SIZE_MAX}) {
    softhca_string_bytes = bytes;
    work();
  }
  softhca_string_bytes = here;
#else
  work();
#endif
}

void copy_every_length() {
  std::vector<std::uint8_t> from(400);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + 1);
  for (std::size_t size = 0; size < 330; ++size) {
    for (const std::size_t place : {0u, 1u, 7u, 8u, 63u}) {
      std::vector<std::uint8_t> to(400, 0);
      CHECK_EQ(guarded_copy(to.data() + place, from.data() + 3, size), 0u);
      CHECK(std::memcmp(to.data() + place, from.data() + 3, size) == 0);
      CHECK(std::all_of(to.begin(), to.begin() + static_cast<long>(place),
                        [](std::uint8_t byte) { return byte == 0; }));
      CHECK(std::all_of(to.begin() + static_cast<long>(place + size), to.end(),
                        [](std::uint8_t byte) { return byte == 0; }));
    }
  }
}

TEST("guarded access: every length from every place is copied, and nothing beside it") {
  in_either_way(copy_every_length);
}

void copy_into_nothing() {
  Pages pages;
  std::vector<std::uint8_t> ours(500, 5);
  for (const std::size_t there : {0u, 1u, 8u, 63u, 64u, 65u, 200u}) {
    for (const std::size_t beyond : {1u, 8u, 64u, 200u, 300u}) {
      CHECK(guarded_copy(pages.end - there, ours.data(), there + beyond) >= beyond);
      CHECK(guarded_copy(ours.data(), pages.end - there, there + beyond) >= beyond);
      CHECK_EQ(guarded_copy(ours.data(), pages.end - there, there), 0u);
    }
  }
}

TEST("guarded access: a copy that runs into nothing says so, from and to") {
  in_either_way(copy_into_nothing);
}

TEST("guarded access: words are loaded, stored and exchanged, or fault") {
  Pages pages;
  auto* word = reinterpret_cast<std::uint32_t*>(pages.end - 8);
  auto* nowhere = reinterpret_cast<std::uint32_t*>(pages.end);
  std::uint32_t value = 0;
  CHECK(guarded_store(word, 0x12345678));
  CHECK(guarded_load(word, &value));
  CHECK_EQ(value, 0x12345678u);
  CHECK(!guarded_store(nowhere, 1));
  CHECK(!guarded_load(nowhere, &value));
  std::uint64_t original = 0;
  CHECK(guarded_store(word, 41) && guarded_store(word + 1, 0));
  CHECK(guarded_fetch_add(word, 1, &original));
  CHECK_EQ(original, 41u);
  CHECK(guarded_compare_swap(word, 41, 7, &original));
  CHECK_EQ(original, 42u);
  CHECK(guarded_compare_swap(word, 42, 7, &original));
  CHECK_EQ(original, 42u);
  CHECK(guarded_fetch_add(word, ~std::uint64_t{0}, &original));
  CHECK_EQ(original, 7u);
  CHECK(!guarded_fetch_add(nowhere, 1, &original));
  CHECK(!guarded_compare_swap(nowhere, 1, 2, &original));
  // What may be read only: even an exchange that would change nothing.
  CHECK(mprotect(pages.at, 2 * pages.page, PROT_READ) == 0);
  CHECK(!guarded_fetch_add(word, 1, &original));
  CHECK(!guarded_compare_swap(word, 1, 2, &original));
  CHECK(!guarded_compare_swap(word, 6, 2, &original));
  CHECK(!guarded_store(word, 1));
  CHECK(guarded_load(word, &value));
  CHECK_EQ(value, 6u);
}

// As who opens a device does, while another thread forks.
TEST("guarded access: a child of fork() can install the guard, though its parent was just at it") {
  std::atomic<bool> stop{false};
  std::thread installer([&] {
    while (!stop.load()) install_fault_guard();
  });
  int status = 0;
  for (int forks = 0; forks < 50 && status == 0; ++forks) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      install_fault_guard();
      _exit(0);
    }
    waitpid(child, &status, 0);
  }
  stop.store(true);
  installer.join();
  CHECK_EQ(status, 0);
}

}  // namespace
}  // namespace softhca::testing
