// Completion queues that wait to be processed, and the threads that process them.
//
// A queue is with one thread at a time, and behind the others again when its budget is used up.
// There is one thread; more join when those at work have been busy with one queue for so long that
// their callbacks must be waiting for something.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <unordered_map>

#include "driver/completion_sink.hpp"

namespace softhca {

// Thread-safe.
class CompletionWork final : public CompletionSink {
 public:
  using Clock = std::chrono::steady_clock;

  struct Job {
    std::uint32_t cq = 0;      // 0: the thread is not needed any more, and must end.
    bool need_thread = false;  // Start another thread, which calls take() too.
  };

  explicit CompletionWork(std::uint32_t max_threads) : max_threads_(max_threads) {}

  // A queue must be added before it is armed.
  void add(std::uint32_t cq);
  // Forgets a queue; who is with it notices by and by.
  void remove(std::uint32_t cq);
  // Waits until a queue is with no thread but the calling one, which is in a callback of it. Does
  // not wait for threads that wait here themselves for the caller: two callbacks that free each
  // other's queues both go on. False if it takes longer than `longest`.
  bool wait_for_others(std::uint32_t cq, std::chrono::milliseconds longest);
  // The same for who lets the others go on meanwhile himself. True: the caller waits until
  // `is_given_back`, which any thread may ask, and then says so.
  bool begin_wait(std::uint32_t cq);
  bool is_given_back(std::uint32_t cq);
  void end_wait(std::uint32_t cq);
  // True if the queue cannot go on while the calling thread is where it is: in a callback of it, or
  // in one of another queue for which there is the same thread only.
  bool would_wait_for_caller(std::uint32_t cq);

  void notify(std::uint32_t cq) override;

  // True: the caller must start a thread, for nobody has yet. Said once.
  bool claim_first_thread();
  // The next queue for the calling thread, which waits for one.
  Job take();
  // Takes a queue if one waits; for who has no threads. Its cq is 0 if none does.
  Job try_take();
  // The queue of the last take() is done with for now; `again`: it has more.
  void give_back(std::uint32_t cq, bool again);
  // A thread that was to be started could not be.
  void thread_failed();
  // Lets every thread go, as soon as its callback returns.
  void stop();

 private:
  enum class Stage { IDLE, QUEUED, RUNNING, RUNNING_AND_NOTIFIED };
  struct Active {
    Clock::time_point since;
    std::uint32_t cq;
    std::uint64_t thread;
  };

  bool is_with_others(std::uint32_t cq) const;

  Job start(std::uint32_t cq);
  // Threads that are likely to come back soon, and until when that is to be believed.
  std::size_t promising(Clock::time_point now, Clock::time_point& until) const;

  const std::uint32_t max_threads_;
  std::mutex mutex_;
  std::condition_variable ready_changed_;
  std::condition_variable given_back_;
  std::unordered_map<std::uint32_t, Stage> queues_;
  std::deque<std::uint32_t> ready_;
  std::list<Active> active_;
  std::uint32_t threads_ = 0;  // Started, or about to be.
  std::uint32_t waiting_ = 0;  // In take().
  bool stopping_ = false;
};

}  // namespace softhca
