#include "driver/completion_work.hpp"

#include <pthread.h>

#include <algorithm>

namespace softhca {
namespace {

// A thread that has been with one queue for longer than this is taken to be waiting in a callback.
constexpr std::chrono::milliseconds kStalled{2};
// A thread beyond the first that had nothing to do for this long ends.
constexpr std::chrono::seconds kSurplus{5};

std::uint64_t this_thread() { return static_cast<std::uint64_t>(pthread_self()); }

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

void CompletionWork::wait_for_others(std::uint32_t cq) {
  std::unique_lock lock(mutex_);
  given_back_.wait(lock, [&] {
    return std::ranges::none_of(active_, [&](const Active& active) {
      return active.cq == cq && active.thread != this_thread();
    });
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
  queues_[cq] = Stage::RUNNING;
  active_.push_back({Clock::now(), cq, this_thread()});
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
