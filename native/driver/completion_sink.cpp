#include "driver/completion_sink.hpp"

#include <algorithm>
#include <utility>

namespace softhca {

std::uint32_t SinkTable::add(std::shared_ptr<CompletionSink> sink) {
  const std::lock_guard lock(mutex_);
  const auto free = std::ranges::find(sinks_, nullptr);
  const auto index = static_cast<std::uint32_t>(free - sinks_.begin());
  if (free == sinks_.end()) {
    sinks_.push_back(std::move(sink));
  } else {
    *free = std::move(sink);
  }
  return index + 1;
}

void SinkTable::remove(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  sinks_[number - 1].reset();
}

void SinkTable::lose() {
  const std::lock_guard lock(mutex_);
  for (const auto& sink : sinks_) {
    if (sink) sink->lose();
  }
}

void SinkTable::notify_all(Adapter& adapter) {
  CompletionEvent event;
  if (!adapter.next_completion_event(event)) return;
  const std::lock_guard lock(mutex_);
  do {
    if (const auto& sink = sinks_[event.channel - 1]; sink) sink->notify(event.cq);
  } while (adapter.next_completion_event(event));
}

}  // namespace softhca
