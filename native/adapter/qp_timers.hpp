// Deadlines of queue pairs. Each has at most one entry in a heap that counts. It is not moved when
// the deadline moves on, since that happens with every acknowledgement; one that comes early is put
// back. All that is looked at for it lies together: queue pairs by the thousand are far away in
// memory, and most entries come early.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "adapter/qp_table.hpp"
#include "transport/queue_pair.hpp"

namespace softhca {

class QpTimers {
 public:
  // No later than the first deadline.
  std::uint64_t next_ns() const { return heap_.empty() ? kNever : heap_.front().at_ns; }

  // Call whenever the deadline of `qp` may have changed.
  void update(const QueuePair& qp) { set(qp.qpn, qp.deadline_ns()); }
  void set(std::uint32_t qpn, std::uint64_t deadline_ns) {
    Timer& timer = timer_of(qpn);
    timer.deadline_ns = deadline_ns;
    if (deadline_ns < timer.entry_ns) arm(timer);
  }
  // Call when the queue pair has no deadline for a long time, or ends.
  void forget(std::uint32_t qpn) {
    Timer& timer = timer_of(qpn);
    if (timer.entry_ns != kNever) --armed_;
    timer = {};
    drop_what_is_over();
  }
  // A queue pair whose deadline has come: to be told of again by update(). 0: there is none.
  std::uint32_t pop_due(std::uint64_t now_ns) {
    while (!heap_.empty() && heap_.front().at_ns <= now_ns) {
      const std::uint32_t qpn = heap_.front().qpn;
      Timer& timer = timers_[QpTable::slot_of(qpn)];
      timer.entry_ns = kNever;
      --armed_;
      drop_what_is_over();
      if (timer.deadline_ns <= now_ns) return qpn;
      if (timer.deadline_ns != kNever) arm(timer);
    }
    return 0;
  }
  std::size_t entries() const { return heap_.size(); }

 private:
  struct Entry {
    std::uint64_t at_ns;
    std::uint32_t qpn;
    // Ties are broken by number, so that the order depends on nothing else.
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  struct Timer {
    std::uint64_t deadline_ns = kNever;
    std::uint64_t entry_ns = kNever;  // Where the entry that counts is.
    std::uint32_t qpn = 0;
  };
  // More entries than this for each that counts are not kept.
  static constexpr std::size_t kMostPerTimer = 2;
  static constexpr std::size_t kMostForNone = 64;

  bool counts(const Entry& entry) const {
    const Timer& timer = timers_[QpTable::slot_of(entry.qpn)];
    return timer.qpn == entry.qpn && timer.entry_ns == entry.at_ns;
  }
  // The first entry counts: nobody is woken for nothing.
  void drop_what_is_over() {
    while (!heap_.empty() && !counts(heap_.front())) {
      std::ranges::pop_heap(heap_, std::greater{});
      heap_.pop_back();
    }
  }
  // A number that is used again is another one.
  Timer& timer_of(std::uint32_t qpn) {
    const std::size_t slot = QpTable::slot_of(qpn);
    if (slot >= timers_.size()) timers_.resize(slot + 1);
    timers_[slot].qpn = qpn;
    return timers_[slot];
  }
  void arm(Timer& timer) {
    armed_ += timer.entry_ns == kNever ? 1 : 0;
    timer.entry_ns = timer.deadline_ns;
    heap_.push_back({timer.entry_ns, timer.qpn});
    std::ranges::push_heap(heap_, std::greater{});
    if (heap_.size() > kMostPerTimer * armed_ + kMostForNone) keep_what_counts();
  }
  void keep_what_counts() {
    std::erase_if(heap_, [this](const Entry& entry) { return !counts(entry); });
    std::ranges::make_heap(heap_, std::greater{});
  }

  std::vector<Entry> heap_;    // The earliest first.
  std::vector<Timer> timers_;  // By the slots of the table.
  std::size_t armed_ = 0;      // That have an entry which counts.
};

}  // namespace softhca
