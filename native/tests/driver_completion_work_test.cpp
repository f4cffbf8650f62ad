// Who gets which queue, and who waits for whom, among threads that run callbacks.

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "driver/completion_work.hpp"
#include "tests/check.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

using namespace testing;

void until(const std::atomic<int>& value, int least) {
  while (value.load() < least) std::this_thread::yield();
}

TEST("driver: a queue that is notified while it is processed comes again, once") {
  CompletionWork work(1);
  work.add(7);
  CHECK_EQ(work.try_take().cq, 0u);
  work.notify(7);
  work.notify(7);
  CHECK_EQ(work.try_take().cq, 7u);
  CHECK_EQ(work.try_take().cq, 0u);
  work.notify(7);
  work.notify(7);
  CHECK_EQ(work.try_take().cq, 0u);  // Not while it is with somebody.
  work.give_back(7, false);
  CHECK_EQ(work.try_take().cq, 7u);
  work.give_back(7, false);
  CHECK_EQ(work.try_take().cq, 0u);
}

TEST("driver: a queue whose budget is spent goes behind the others") {
  CompletionWork work(1);
  for (const std::uint32_t cq : {1u, 2u, 3u}) {
    work.add(cq);
    work.notify(cq);
  }
  std::vector<std::uint32_t> order;
  for (int turn = 0; turn < 7; ++turn) {
    order.push_back(work.try_take().cq);
    work.give_back(order.back(), true);
  }
  CHECK(order == std::vector<std::uint32_t>({1, 2, 3, 1, 2, 3, 1}));
}

TEST("driver: a queue that was removed is with nobody again, notified or not") {
  CompletionWork work(1);
  work.add(1);
  work.notify(1);
  CHECK_EQ(work.try_take().cq, 1u);
  work.remove(1);
  work.notify(1);
  work.give_back(1, true);
  CHECK_EQ(work.try_take().cq, 0u);
  work.wait_for_others(1, std::chrono::hours(1));
}

TEST("driver: who frees a queue waits for others that have it, not for itself") {
  CompletionWork work(1);
  work.add(1);
  work.notify(1);
  std::atomic<int> step{0};
  std::atomic<bool> given_back{false};
  std::thread callback([&] {
    CHECK_EQ(work.try_take().cq, 1u);
    work.wait_for_others(1, std::chrono::hours(1));
    CHECK(work.would_wait_for_caller(1));
    CHECK(work.would_wait_for_caller(2));  // There is no other thread.
    step = 1;
    until(step, 2);
    given_back = true;
    work.give_back(1, false);
  });
  until(step, 1);
  CHECK(!work.would_wait_for_caller(1));
  work.remove(1);
  step = 2;
  work.wait_for_others(1, std::chrono::hours(1));
  CHECK(given_back.load());
  callback.join();
}

// Callbacks of as many queues, each of a thread of its own, free each the next one's queue.
void free_in_a_ring(std::size_t size) {
  std::deque<CompletionWork> works;
  for (std::size_t i = 0; i < size; ++i) {
    works.emplace_back(1);
    works.back().add(1);
    works.back().notify(1);
  }
  std::atomic<int> arrived{0}, left{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      CHECK_EQ(works[i].try_take().cq, 1u);
      ++arrived;
      until(arrived, static_cast<int>(size));
      CompletionWork& next = works[(i + 1) % size];
      next.remove(1);
      next.wait_for_others(1, std::chrono::hours(1));
      ++left;
      works[i].give_back(1, false);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(left.load(), static_cast<int>(size));
}

TEST("driver: callbacks that free each other's queues all go on") {
  for (std::size_t size = 2; size <= 5; ++size) free_in_a_ring(size);
}

TEST("driver: threads take every notice of many queues, one thread at a time") {
  constexpr std::uint32_t kQueues = 16;
  constexpr int kThreads = 4, kNotices = 20000;
  CompletionWork work(kThreads);
  struct Queue {
    std::atomic<int> pending{0}, inside{0}, taken{0};
  };
  std::vector<Queue> queues(kQueues);
  for (std::uint32_t cq = 1; cq <= kQueues; ++cq) work.add(cq);
  std::atomic<int> started{0};
  std::atomic<bool> overlapped{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ++started;
      for (auto job = work.take(); job.cq != 0; job = work.take()) {
        Queue& queue = queues[job.cq - 1];
        if (queue.inside.fetch_add(1) != 0) overlapped = true;
        queue.taken += queue.pending.exchange(0);
        queue.inside.fetch_sub(1);
        work.give_back(job.cq, false);
      }
    });
  }
  until(started, kThreads);
  Random random(seed());
  for (int i = 0; i < kNotices; ++i) {
    const auto cq = static_cast<std::uint32_t>(1 + random.below(kQueues));
    ++queues[cq - 1].pending;
    work.notify(cq);
  }
  int total = 0;
  while (total < kNotices) {  // Else a notice was lost, and this hangs.
    std::this_thread::yield();
    total = 0;
    for (const Queue& queue : queues) total += queue.taken.load();
  }
  work.stop();
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(total, kNotices);
  CHECK(!overlapped.load());
}

}  // namespace
}  // namespace softhca
