// Deadlines of queue pairs: at most one entry each. An entry is not moved when its deadline moves
// on, since that happens with every acknowledgement; one that comes early asks again.
#pragma once

#include <compare>
#include <cstdint>
#include <set>

#include "transport/queue_pair.hpp"

namespace softhca {

class QpTimers {
 public:
  std::uint64_t next_ns() const { return entries_.empty() ? kNever : entries_.begin()->at_ns; }

  // Call whenever the deadline of `qp` may have changed.
  void update(QueuePair& qp) {
    const std::uint64_t deadline = qp.deadline_ns();
    if (deadline < qp.timer_at_ns) {
      forget(qp);
      qp.timer_at_ns = deadline;
      entries_.insert({deadline, qp.qpn});
    }
  }
  // Call when `qp` has no deadline for a long time, or ends.
  void forget(QueuePair& qp) {
    if (qp.timer_at_ns != kNever) {
      entries_.erase({qp.timer_at_ns, qp.qpn});
      qp.timer_at_ns = kNever;
    }
  }
  // Takes the next entry that is due; false if none is. `find` gives the queue pair of a number.
  template <class Find>
  bool pop_due(std::uint64_t now_ns, Find find, QueuePair*& due) {
    if (next_ns() > now_ns || entries_.empty()) {
      return false;
    }
    due = find(entries_.begin()->qpn);
    forget(*due);
    return true;
  }

 private:
  struct Entry {
    std::uint64_t at_ns;
    std::uint32_t qpn;
    // Ties are broken by number, so that the order depends on nothing else.
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  std::set<Entry> entries_;
};

}  // namespace softhca
