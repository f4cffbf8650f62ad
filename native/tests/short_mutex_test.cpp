#include "vocabulary/short_mutex.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/check.hpp"

namespace softhca {
namespace {

TEST("short mutex: one at a time, and none of those who sleep is forgotten") {
  constexpr int kThreads = 4;
  constexpr int kTurns = 20'000;
  ShortMutex mutex;
  std::uint64_t turns = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::lock_guard lock(mutex);
        const std::uint64_t before = turns;
        // Now and then it is held for so long that the others go to sleep.
        if (turn % 512 == 0) std::this_thread::yield();
        turns = before + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(turns, std::uint64_t{kThreads} * kTurns);
}

TEST("short mutex: trying does not wait") {
  ShortMutex mutex;
  CHECK(mutex.try_lock());
  bool taken = true;
  std::thread([&] { taken = mutex.try_lock(); }).join();
  CHECK(!taken);
  mutex.unlock();
  CHECK(mutex.try_lock());
  mutex.unlock();
}

TEST("short mutex: who sleeps for it is woken when it is given back") {
  ShortMutex mutex;
  mutex.lock();
  std::atomic<bool> entered{false};
  std::thread sleeper([&] {
    const std::lock_guard lock(mutex);
    entered.store(true);
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  CHECK(!entered.load());
  mutex.unlock();
  sleeper.join();
  CHECK(entered.load());
}

// A sanitizer allows no threads in such a child, or leaves its allocator's locks as they were.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

std::atomic<int> barriers{0};
std::atomic<pid_t> forked{-1};

// Until somebody has slept for a mutex.
void have_one_sleep() {
  const int before = barriers.load();
  ShortMutex mutex;
  mutex.lock();
  std::thread sleeper([&] { const std::lock_guard lock(mutex); });
  while (barriers.load() == before) std::this_thread::yield();
  mutex.unlock();
  sleeper.join();
}

// Comes in the place of a barrier. In the first there is a fork(), as by another thread just then.
void on_barrier(int) {
  if (barriers.fetch_add(1) > 0) return;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    have_one_sleep();
    _exit(0);
  }
  forked.store(child);
}

bool take_barriers() {
  std::array<sock_filter, 4> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  struct sigaction action {};
  action.sa_handler = on_barrier;
  action.sa_flags = SA_NODEFER;  // Else what the child starts has the signal blocked.
  return sigaction(SIGSYS, &action, nullptr) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// In a process that does nothing else, since it is about the first sleep of a process.
TEST("short mutex: a child of fork() sleeps for it, though its parent was just going to") {
  constexpr const char* kAlone = "SOFTHCA_TEST_ALONE";
  int status = -1;
  if (std::getenv(kAlone) == nullptr) {
    const pid_t alone = fork();
    if (alone == 0) {
      setenv(kAlone, "1", 1);
      execl("/proc/self/exe", "softhca_tests", "though its parent was just going to", nullptr);
      _exit(127);
    }
    CHECK_EQ(waitpid(alone, &status, 0), alone);
  } else {
    CHECK(take_barriers());
    have_one_sleep();
    CHECK_EQ(waitpid(forked.load(), &status, 0), forked.load());
  }
  CHECK_EQ(status, 0);
}

#endif

}  // namespace
}  // namespace softhca
