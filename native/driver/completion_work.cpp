#include "driver/completion_work.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace softhca {
namespace {

// A thread that has been with one queue for longer than this is taken to be waiting in a callback.
constexpr std::chrono::milliseconds kStalled{2};
// A thread beyond the first that had nothing to do for this long ends.
constexpr std::chrono::seconds kSurplus{5};

std::uint64_t this_thread() { return static_cast<std::uint64_t>(pthread_self()); }

// Which thread has which queue, and which thread waits for which queue to be given back, over all
// works of the process. Its mutex is the innermost.
class WaitGraph {
 public:
  using Queue = std::pair<const CompletionWork*, std::uint32_t>;

  void has(Queue queue) { insert(holders_, queue); }
  void gives_back(Queue queue) { erase(holders_, queue); }
  // False, and nothing is noted, if the thread would wait for itself.
  bool waits(Queue queue) {
    const std::lock_guard lock(mutex_);
    std::vector<Queue> seen;
    if (leads_here(queue, seen)) return false;
    waiters_.push_back({queue, this_thread()});
    return true;
  }
  void waits_no_more(Queue queue) { erase(waiters_, queue); }

 private:
  struct Edge {
    Queue queue;
    std::uint64_t thread;
  };

  // Whether another thread that has the queue waits, directly or not, for one that the caller has.
  bool leads_here(Queue queue, std::vector<Queue>& seen) const {
    if (std::ranges::find(seen, queue) != seen.end()) return false;
    const bool is_first = seen.empty();
    seen.push_back(queue);
    return std::ranges::any_of(holders_, [&](const Edge& holder) {
      if (holder.queue != queue) return false;
      if (holder.thread == this_thread()) return !is_first;
      return std::ranges::any_of(waiters_, [&](const Edge& waiter) {
        return waiter.thread == holder.thread && leads_here(waiter.queue, seen);
      });
    });
  }
  void insert(std::vector<Edge>& edges, Queue queue) {
    const std::lock_guard lock(mutex_);
    edges.push_back({queue, this_thread()});
  }
  void erase(std::vector<Edge>& edges, Queue queue) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(edges, [&](const Edge& edge) {
      return edge.queue == queue && edge.thread == this_thread();
    });
    if (found != edges.end()) edges.erase(found);
  }

  std::mutex mutex_;
  std::vector<Edge> holders_;
  std::vector<Edge> waiters_;
};

// Never destroyed: threads of the program may outlive its static objects. A child of fork() makes a
// new one, since another thread of the parent may have been at the old one; not while it forks,
// when an allocator may be as that other thread left it.
std::atomic<WaitGraph*> graph{nullptr};

WaitGraph& wait_graph() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { graph.store(nullptr); });
  static_cast<void>(registered);
  WaitGraph* current = graph.load();
  if (current == nullptr) {
    auto made = std::make_unique<WaitGraph>();
    if (graph.compare_exchange_strong(current, made.get())) current = made.release();
  }
  return *current;
}

}  // namespace

void CompletionWork::add(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  queues_[cq] = {};
}

void CompletionWork::remove(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  queues_.erase(cq);
  std::erase(ready_, cq);
}

bool CompletionWork::is_with_others(std::uint32_t cq) const {
  return std::ranges::any_of(active_, [&](const Active& active) {
    return active.cq == cq && active.thread != this_thread();
  });
}

bool CompletionWork::wait_for_others(std::uint32_t cq, std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  if (!is_with_others(cq) || !wait_graph().waits({this, cq})) return true;
  const bool gone = given_back_.wait_for(lock, longest, [&] { return !is_with_others(cq); });
  wait_graph().waits_no_more({this, cq});
  return gone;
}

bool CompletionWork::begin_wait(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  return is_with_others(cq) && wait_graph().waits({this, cq});
}

bool CompletionWork::is_given_back(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  return std::ranges::none_of(active_, [&](const Active& active) { return active.cq == cq; });
}

void CompletionWork::end_wait(std::uint32_t cq) { wait_graph().waits_no_more({this, cq}); }

bool CompletionWork::would_wait_for_caller(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(active_, [&](const Active& active) {
    return active.thread == this_thread() && (active.cq == cq || max_threads_ == 1);
  });
}

void CompletionWork::notify(std::uint32_t cq) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(cq);
  if (found == queues_.end()) return;
  Stage& stage = found->second;
  if (stage == Stage::RUNNING) {
    stage = Stage::RUNNING_AND_NOTIFIED;
  } else if (stage == Stage::IDLE) {
    stage = Stage::QUEUED;
    ready_.push_back(cq);
    ready_changed_.notify_one();
  }
}

bool CompletionWork::claim_first_thread() {
  const std::lock_guard lock(mutex_);
  if (threads_ != 0) return false;
  ++threads_;
  return true;
}

std::size_t CompletionWork::promising(Clock::time_point now, Clock::time_point& until) const {
  std::size_t count = 0;
  until = Clock::time_point::max();
  for (const Active& active : active_) {
    const Clock::time_point patience_ends = active.since + kStalled;
    if (patience_ends <= now) continue;
    ++count;
    until = std::min(until, patience_ends);
  }
  return count;
}

CompletionWork::Job CompletionWork::start(std::uint32_t cq) {
  ready_.pop_front();
  // Who was told of another one may have been this thread, which was waiting out its patience.
  if (!ready_.empty()) ready_changed_.notify_one();
  queues_[cq] = Stage::RUNNING;
  active_.push_back({Clock::now(), cq, this_thread()});
  wait_graph().has({this, cq});
  Job job{cq, false};
  if (waiting_ == 0 && threads_ != 0 && threads_ < max_threads_) {
    ++threads_;
    job.need_thread = true;
  }
  return job;
}

CompletionWork::Job CompletionWork::take() {
  std::unique_lock lock(mutex_);
  ++waiting_;
  for (;;) {
    if (stopping_) break;
    if (ready_.empty()) {
      if (waiting_ == 1) {
        ready_changed_.wait(lock);
        continue;
      }
      const bool timed_out = ready_changed_.wait_for(lock, kSurplus) == std::cv_status::timeout;
      if (timed_out && ready_.empty() && waiting_ > 1 && !stopping_) break;
      continue;
    }
    Clock::time_point until;
    if (promising(Clock::now(), until) == 0) {
      --waiting_;
      return start(ready_.front());
    }
    ready_changed_.wait_until(lock, until);
  }
  --waiting_;
  --threads_;
  return {};
}

CompletionWork::Job CompletionWork::try_take() {
  const std::lock_guard lock(mutex_);
  return ready_.empty() ? Job{} : start(ready_.front());
}

void CompletionWork::give_back(std::uint32_t cq, bool again) {
  const std::lock_guard lock(mutex_);
  active_.remove_if(
      [&](const Active& active) { return active.cq == cq && active.thread == this_thread(); });
  wait_graph().gives_back({this, cq});
  const auto found = queues_.find(cq);
  if (found != queues_.end()) {
    again = again || found->second == Stage::RUNNING_AND_NOTIFIED;
    found->second = again ? Stage::QUEUED : Stage::IDLE;
    if (again) ready_.push_back(cq);
  }
  given_back_.notify_all();
}

void CompletionWork::thread_failed() {
  const std::lock_guard lock(mutex_);
  --threads_;
}

void CompletionWork::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  ready_changed_.notify_all();
}

}  // namespace softhca
