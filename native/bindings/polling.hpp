// Polling: completions as objects, and as records.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "bindings/completion_type.hpp"
#include "bindings/hca.hpp"
#include "bindings/records.hpp"
#include "bindings/refusal.hpp"

namespace softhca {

// Completions that one lock takes; more than most callers ask for.
constexpr std::size_t kPollBatch = 64;

// Room for completions that nobody fills before they are polled.
class PollRoom {
 public:
  PollRoom() {}  // NOLINT(modernize-use-equals-default): leaves the room as it is.
  std::span<Completion> first(std::size_t count) { return {entries_, count}; }
  const Completion& operator[](std::size_t index) const { return entries_[index]; }

 private:
  static_assert(std::is_trivially_destructible_v<Completion>);
  union {
    Completion entries_[kPollBatch];
  };
};

// Takes up to `max_entries` and calls `take(completion)` for each, with the GIL held; returns how
// many. Those that `take` says are not the caller's do not count. One that finds nothing makes
// progress first.
template <class Take>
std::size_t poll_each(Hca& hca, std::uint32_t cq, std::uint64_t max_entries,
                      std::uint64_t patience_ns, bool progress, Take&& take) {
  PollRoom room;
  std::size_t total = 0;
  bool any = false;
  while (total < max_entries) {
    const std::size_t wanted = std::min<std::uint64_t>(kPollBatch, max_entries - total);
    const Result<std::size_t> polled =
        progress ? hca.poll(cq, room.first(wanted), total == 0 ? patience_ns : 0)
                 : hca.poll_waiting(cq, room.first(wanted));
    if (!polled.ok() && any) break;  // What was taken before is not lost for it.
    const std::size_t count = demand(polled);
    for (std::size_t i = 0; i < count; ++i) {
      if (take(room[i])) ++total;
    }
    any = true;
    if (count < wanted) break;
  }
  return total;
}

// What a program has polled though a task awaits it, which may have begun while the poll was under
// way. It is the task's: handed over once all is taken, since that runs Python code.
class AwaitedByTasks {
 public:
  // `for_tasks`: who polls is given them himself.
  explicit AwaitedByTasks(bool for_tasks = false) : taken_type_(for_tasks ? nullptr : cqe_type_) {}
  // False, and nothing is taken: no task awaits it.
  bool take(const Completion& completion, CqeTable::Posted& posted) {
    return Py_TYPE(posted.cqe.ptr()) == taken_type_ && take_awaited(completion, posted);
  }
  // Of a record, which has none. To let go of it may run Python code too.
  void let_go_later(CqeTable::Posted&& posted) { taken_.push_back({std::move(posted), {}}); }
  void hand_over() {
    if (!taken_.empty()) hand_over_taken();
  }

  // The class of the callbacks that tasks await by, and of what they are given.
  static void name(nb::handle cqe_class, nb::handle wc_class);

 private:
  struct Taken {
    CqeTable::Posted posted;
    Kept wc;  // Null: it is only let go of.
  };

  bool take_awaited(const Completion& completion, CqeTable::Posted& posted);
  void hand_over_taken();

  static inline PyTypeObject* cqe_type_ = nullptr;
  static inline PyObject* wc_class_ = nullptr;
  const PyTypeObject* const taken_type_;
  std::vector<Taken> taken_;
};

// Takes the callback of a completion, if it has one, out of the table. False: it is not for who
// polls, but for a task; or its queue pair went since, by a finalizer, and has told the callback.
inline bool take_cqe(Hca& hca, const Completion& completion, CqeTable::Posted& posted,
                     AwaitedByTasks& awaited) {
  if (completion.cqe == 0) return true;
  posted = hca.cqes.take(completion.cqe, completion.status == WcStatus::SUCCESS);
  return posted.cqe.is_valid() && !awaited.take(completion, posted);
}

// `for_tasks`: with those that tasks await, for the caller to hand over.
nb::list poll_list(Hca& hca, std::uint32_t cq, std::uint64_t max_entries, nb::handle cls,
                   std::uint64_t patience_ns = 0, bool progress = true, bool for_tasks = false);
// The oldest completion, or None.
nb::object poll_one(Hca& hca, std::uint32_t cq, nb::handle cls);
// Into room for so many records.
std::size_t poll_records(Hca& hca, std::uint32_t cq, char* records, std::size_t room);

// Room for records: of its own, or of a writable buffer that it holds.
class CompletionRecords {
 public:
  explicit CompletionRecords(std::size_t room) : own_(room), data_(bytes_of(own_)), room_(room) {}
  explicit CompletionRecords(nb::handle buffer);
  ~CompletionRecords();
  CompletionRecords(const CompletionRecords&) = delete;
  CompletionRecords& operator=(const CompletionRecords&) = delete;

  char* data() { return data_; }
  std::size_t room() const { return room_; }
  CompletionRecord at(std::size_t index) const {
    CompletionRecord record;
    std::memcpy(&record, data_ + index * sizeof record, sizeof record);
    return record;
  }

 private:
  static char* bytes_of(std::vector<CompletionRecord>& records) {
    return reinterpret_cast<char*>(records.data());
  }

  std::vector<CompletionRecord> own_;
  Py_buffer buffer_{};
  char* data_;
  std::size_t room_;
};

}  // namespace softhca
