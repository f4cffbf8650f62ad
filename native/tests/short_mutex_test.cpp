#include "vocabulary/short_mutex.hpp"

#include <atomic>
#include <cstdint>
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

}  // namespace
}  // namespace softhca
