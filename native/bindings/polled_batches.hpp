// Completions that were polled and wait for their callbacks, while others destroy queue pairs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "queue/completion.hpp"

namespace softhca {

// Completions that are taken from a queue at once.
constexpr std::size_t kCallbackBatch = 16;

// What one thread has polled. It is filled under the adapter's lock.
struct PolledBatch {
  std::array<Completion, kCallbackBatch> completions;
  // Queue pairs that were destroyed since: whose callbacks must not run any more. Belongs to who
  // holds the GIL.
  std::vector<std::uint32_t> destroyed;

  bool is_of_destroyed(const Completion& completion) const {
    return std::ranges::find(destroyed, completion.qpn) != destroyed.end();
  }
};

// The batches of all threads at one adapter. Its mutex is the innermost.
class PolledBatches {
 public:
  // A batch for as long as it lives.
  class Entry {
   public:
    explicit Entry(PolledBatches& all) : all_(all) {
      const std::lock_guard lock(all_.mutex_);
      all_.batches_.push_front(&batch_);
      at_ = all_.batches_.begin();
    }
    ~Entry() {
      const std::lock_guard lock(all_.mutex_);
      all_.batches_.erase(at_);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    PolledBatch& batch() { return batch_; }

   private:
    PolledBatches& all_;
    PolledBatch batch_;
    std::list<PolledBatch*>::iterator at_;
  };

  // Where one thread polls into without the GIL, for as long as it lives: until the thread has the
  // GIL again, and takes what it has polled out of the table.
  class Room {
   public:
    Room(PolledBatches& all, std::span<Completion> room) : all_(all), room_(room) {
      for (Completion& completion : room) completion.cqe = 0;
      const std::lock_guard lock(all_.mutex_);
      after_ = std::exchange(all_.rooms_, this);
      if (after_ != nullptr) after_->before_ = this;
    }
    ~Room() {
      const std::lock_guard lock(all_.mutex_);
      (before_ != nullptr ? before_->after_ : all_.rooms_) = after_;
      if (after_ != nullptr) after_->before_ = before_;
    }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

   private:
    friend class PolledBatches;
    PolledBatches& all_;
    const std::span<const Completion> room_;
    Room* before_ = nullptr;
    Room* after_ = nullptr;
  };

  // With the GIL held.
  void destroyed(std::uint32_t qpn) {
    const std::lock_guard lock(mutex_);
    for (PolledBatch* batch : batches_) batch->destroyed.push_back(qpn);
  }

  // Adds the tokens of a queue pair's completions. Those of callbacks that ran are among them; the
  // table knows them no more. With the adapter locked.
  void collect(std::uint32_t qpn, std::vector<std::uint64_t>& tokens) {
    const std::lock_guard lock(mutex_);
    for (const PolledBatch* batch : batches_) {
      for (const Completion& completion : batch->completions) {
        if (completion.qpn == qpn && completion.cqe != 0) tokens.push_back(completion.cqe);
      }
    }
    collect_from_rooms(qpn, tokens);
  }
  // Of all queue pairs.
  void collect_all(std::vector<std::uint64_t>& tokens) {
    const std::lock_guard lock(mutex_);
    const auto add = [&](std::span<const Completion> completions) {
      for (const Completion& completion : completions) {
        if (completion.cqe != 0) tokens.push_back(completion.cqe);
      }
    };
    for (const PolledBatch* batch : batches_) add(batch->completions);
    for (const Room* one = rooms_; one != nullptr; one = one->after_) add(one->room_);
  }
  // The same as collect() without those that go to callbacks.
  void collect_polled(std::uint32_t qpn, std::vector<std::uint64_t>& tokens) {
    const std::lock_guard lock(mutex_);
    collect_from_rooms(qpn, tokens);
  }

 private:
  void collect_from_rooms(std::uint32_t qpn, std::vector<std::uint64_t>& tokens) const {
    for (const Room* one = rooms_; one != nullptr; one = one->after_) {
      for (const Completion& completion : one->room_) {
        if (completion.cqe != 0 && completion.qpn == qpn) tokens.push_back(completion.cqe);
      }
    }
  }

  std::mutex mutex_;
  std::list<PolledBatch*> batches_;
  Room* rooms_ = nullptr;  // The first one.
};

}  // namespace softhca
