#include "bindings/cqe_table.hpp"

#include <algorithm>
#include <utility>

namespace softhca {

std::uint64_t CqeTable::number_of(std::uint32_t index) const {
  return static_cast<std::uint64_t>(entries_[index].generation) << 32 | (index + 1);
}

CqeTable::Entry* CqeTable::find(std::uint64_t number) {
  const auto index = static_cast<std::uint32_t>(number) - 1;
  if (index >= entries_.size() || number_of(index) != number) return nullptr;
  Entry& entry = entries_[index];
  return entry.posted.cqe.is_valid() ? &entry : nullptr;
}

std::uint64_t CqeTable::add(nb::handle cqe, nb::handle wr, PostedTo to, bool signaled) {
  std::uint32_t index;
  if (free_.empty()) {
    index = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Ends& ends = queues_[to.key()];
  Entry& entry = entries_[index];
  entry.posted = {nb::borrow(cqe), nb::borrow(wr)};
  entry.to = to;
  entry.order = kNotYet;
  entry.gone_at = 0;
  entry.signaled = signaled || to.kind != PostedTo::Kind::SEND || all_signaled_.contains(to.number);
  entry.before = ends.last;
  entry.after = kNone;
  (ends.last == kNone ? ends.first : entries_[ends.last].after) = index;
  ends.last = index;
  return number_of(index);
}

// What is returned must be let go of by the caller when the table is in order again: a destructor
// may run Python code that posts.
CqeTable::Posted CqeTable::release(std::uint32_t index) {
  Entry& entry = entries_[index];
  Ends& ends = queues_[entry.to.key()];
  (entry.before == kNone ? ends.first : entries_[entry.before].after) = entry.after;
  (entry.after == kNone ? ends.last : entries_[entry.after].before) = entry.before;
  ++entry.generation;
  Posted posted = std::move(entry.posted);
  entry.posted = {};
  free_.push_back(index);
  return posted;
}

void CqeTable::retire(std::uint32_t from, std::uint64_t order, std::vector<Posted>& retired) {
  for (std::uint32_t at = from; at != kNone;) {
    const std::uint32_t before = entries_[at].before;
    if (!entries_[at].signaled && entries_[at].order < order) retired.push_back(release(at));
    at = before;
  }
}

CqeTable::Posted CqeTable::posted(std::uint64_t number, PostedTo to, std::uint64_t order) {
  if (Entry* entry = find(number); entry != nullptr) {
    if (order < entry->gone_at) return release(static_cast<std::uint32_t>(number) - 1);
    entry->order = order;
    return {};
  }
  std::vector<Posted> retired;
  if (early_.empty() || early_.erase(number) == 0) return {};
  if (const auto queue = queues_.find(to.key()); queue != queues_.end()) {
    retire(queue->second.last, order, retired);
  }
  return {};
}

CqeTable::Posted CqeTable::take(std::uint64_t number, bool succeeded) {
  const Entry* entry = find(number);
  if (entry == nullptr) return {};
  std::vector<Posted> retired;
  if (succeeded && entry->to.kind == PostedTo::Kind::SEND) {
    if (entry->order == kNotYet) {
      early_.insert(number);
    } else {
      retire(entry->before, entry->order, retired);
    }
  }
  return release(static_cast<std::uint32_t>(number) - 1);
}

void CqeTable::remove(std::uint64_t number) {
  if (find(number) != nullptr) {
    const Posted dropped = release(static_cast<std::uint32_t>(number) - 1);
  }
}

std::vector<std::uint64_t> CqeTable::numbers(PostedTo of, std::uint64_t gone_at) {
  std::vector<std::uint64_t> found;
  const auto queue = queues_.find(of.key());
  if (queue == queues_.end()) return found;
  for (std::uint32_t at = queue->second.first; at != kNone; at = entries_[at].after) {
    if (entries_[at].order == kNotYet) {
      entries_[at].gone_at = gone_at;
    } else if (entries_[at].order < gone_at) {
      found.push_back(number_of(at));
    }
  }
  return found;
}

std::vector<CqeTable::Posted> CqeTable::take_all(PostedTo from, std::uint64_t gone_at,
                                                 std::span<const std::uint64_t> polled) {
  std::vector<Posted> taken;
  if (from.kind == PostedTo::Kind::SEND) all_signaled_.erase(from.number);
  for (const std::uint64_t number : numbers(from, gone_at)) {
    if (std::ranges::binary_search(polled, number)) continue;
    taken.push_back(release(static_cast<std::uint32_t>(number) - 1));
  }
  const auto queue = queues_.find(from.key());
  if (queue != queues_.end() && queue->second.first == kNone) queues_.erase(queue);
  return taken;
}

std::vector<CqeTable::Posted> CqeTable::take_everything() {
  std::vector<Posted> taken;
  for (std::uint32_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    if (!entry.posted.cqe.is_valid()) continue;
    if (entry.order == kNotYet) {
      entry.gone_at = kNotYet;
    } else {
      taken.push_back(release(index));
    }
  }
  return taken;
}

}  // namespace softhca
