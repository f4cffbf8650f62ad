// Deadlines of queue pairs. Entries are not moved when a deadline moves on: one that comes early
// asks again.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "transport/queue_pair.hpp"

namespace softhca {

class QpTimers {
 public:
  std::uint64_t next_ns() const { return entries_.empty() ? kNever : entries_.top().at_ns; }

  // Call whenever the deadline of `qp` may have changed.
  void update(QueuePair& qp) {
    const std::uint64_t deadline = qp.deadline_ns();
    if (deadline < qp.timer_at_ns) {
      qp.timer_at_ns = deadline;
      entries_.push({deadline, qp.qpn});
    }
  }
  // Takes the next entry that is due; false if none is. `find` gives the queue pair of a number, or
  // null.
  template <class Find>
  bool pop_due(std::uint64_t now_ns, Find find, QueuePair*& due) {
    while (!entries_.empty() && entries_.top().at_ns <= now_ns) {
      const Entry entry = entries_.top();
      entries_.pop();
      due = find(entry.qpn);
      // An entry that an earlier one has overtaken is stale.
      if (due != nullptr && due->timer_at_ns == entry.at_ns) {
        due->timer_at_ns = kNever;
        return true;
      }
    }
    return false;
  }

 private:
  struct Entry {
    std::uint64_t at_ns;
    std::uint32_t qpn;
    // Ties are broken by number, so that the order depends on nothing else.
    friend bool operator>(const Entry& a, const Entry& b) {
      return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.qpn > b.qpn;
    }
  };
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> entries_;
};

}  // namespace softhca
