#include "bindings/cqe_table.hpp"

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

CqeTable::Posted CqeTable::take(std::uint64_t number, bool succeeded) {
  const Entry* entry = find(number);
  if (entry == nullptr) return {};
  const auto index = static_cast<std::uint32_t>(number) - 1;
  std::vector<Posted> retired;
  if (succeeded && entry->to.kind == PostedTo::Kind::SEND) {
    for (std::uint32_t at = entry->before; at != kNone;) {
      const std::uint32_t before = entries_[at].before;
      if (!entries_[at].signaled) retired.push_back(release(at));
      at = before;
    }
  }
  return release(index);
}

void CqeTable::remove(std::uint64_t number) {
  if (find(number) != nullptr) {
    const Posted dropped = release(static_cast<std::uint32_t>(number) - 1);
  }
}

std::vector<CqeTable::Posted> CqeTable::take_all(PostedTo from) {
  std::vector<Posted> taken;
  const auto queue = queues_.find(from.key());
  if (queue == queues_.end()) return taken;
  while (queue->second.first != kNone) taken.push_back(release(queue->second.first));
  queues_.erase(queue);
  if (from.kind == PostedTo::Kind::SEND) all_signaled_.erase(from.number);
  return taken;
}

std::vector<CqeTable::Posted> CqeTable::take_everything() {
  std::vector<Posted> taken;
  for (std::uint32_t index = 0; index < entries_.size(); ++index) {
    if (entries_[index].posted.cqe.is_valid()) taken.push_back(release(index));
  }
  return taken;
}

std::vector<std::uint64_t> CqeTable::numbers(PostedTo of) const {
  std::vector<std::uint64_t> found;
  const auto queue = queues_.find(of.key());
  if (queue == queues_.end()) return found;
  for (std::uint32_t at = queue->second.first; at != kNone; at = entries_[at].after) {
    found.push_back(number_of(at));
  }
  return found;
}

}  // namespace softhca
