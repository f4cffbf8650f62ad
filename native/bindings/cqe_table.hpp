// Which callback a completion belongs to, and what its work request keeps alive until then.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bindings/gil.hpp"
#include "queue/completion.hpp"

namespace softhca {

namespace nb = nanobind;

// The queue that a work request was posted to.
struct PostedTo {
  enum class Kind : std::uint32_t { SEND, RECEIVE, SHARED };
  Kind kind = Kind::SEND;
  std::uint32_t number = 0;  // QPN, or handle of the SRQ.

  std::uint64_t key() const { return static_cast<std::uint64_t>(kind) << 32 | number; }
};

// One entry per posted work request that has a callback; its number travels through the adapter as
// Completion::cqe. Belongs to who holds the GIL.
class CqeTable {
 public:
  struct Posted {
    Kept cqe;
    Kept wr;
  };

  // A queue pair whose every send completes.
  void all_signaled(std::uint32_t qpn) { all_signaled_.insert(qpn); }
  // Returns the number, which is never 0.
  std::uint64_t add(nb::handle cqe, nb::handle wr, PostedTo to, bool signaled);
  // It was posted, as the `order`th of the adapter. Threads that post to one queue at once may be
  // here in another order than there, and the completion may have been taken already. Returns the
  // work request if its queue went since, for the caller to tell.
  Posted posted(std::uint64_t number, PostedTo to, std::uint64_t order);
  // Takes out the work request of a completion; its cqe is null if it is gone already. The success
  // of a send tells that unsignaled ones before it on the same queue are done too.
  Posted take(std::uint64_t number, bool succeeded);
  // Takes out what was not posted after all.
  void remove(std::uint64_t number);
  // Those of a queue that was destroyed after so many posts of the adapter, or reset. Not those
  // that a thread is just posting: it learns itself whether it came too late. Nor the `polled`,
  // whose completions somebody is yet to take; they are sorted.
  std::vector<Posted> take_all(PostedTo from, std::uint64_t gone_at,
                               std::span<const std::uint64_t> polled = {});
  std::vector<std::uint64_t> numbers(PostedTo of, std::uint64_t gone_at);
  std::vector<Posted> take_everything();
  std::size_t size() const { return entries_.size() - free_.size(); }

  // For the garbage collector: each object, until `visit` returns something but 0.
  template <class Visit>
  int for_each_object(Visit visit) const {
    for (const Entry& entry : entries_) {
      for (const Kept* object : {&entry.posted.cqe, &entry.posted.wr}) {
        if (const int stop = object->is_valid() ? visit(*object) : 0; stop != 0) return stop;
      }
    }
    return 0;
  }

 private:
  struct Entry {
    Posted posted;
    PostedTo to;
    bool signaled = true;
    std::uint32_t generation = 0;
    std::uint64_t order = kNotYet;
    // Posts of the adapter when its queue went, if it was not known then to be posted.
    std::uint64_t gone_at = 0;
    // Neighbours in posting order, by index; the list of its queue.
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
  };
  struct Ends {
    std::uint32_t first = kNone;
    std::uint32_t last = kNone;
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint64_t kNotYet = ~std::uint64_t{0};

  Entry* find(std::uint64_t number);
  std::uint64_t number_of(std::uint32_t index) const;
  Posted release(std::uint32_t index);
  // Takes out unsignaled work requests that were posted before `order`, from an entry backwards.
  void retire(std::uint32_t from, std::uint64_t order, std::vector<Posted>& retired);

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
  std::unordered_map<std::uint64_t, Ends> queues_;
  std::unordered_set<std::uint32_t> all_signaled_;
  // Sends that succeeded before whoever posted them came to say so.
  std::unordered_set<std::uint64_t> early_;
};

}  // namespace softhca
