// Who is told when an armed CQ gets a completion.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/adapter.hpp"

namespace softhca {

class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  // Called with the adapter locked: it must be quick, and call nothing of the adapter.
  virtual void notify(std::uint32_t cq) = 0;
  // Somebody else may have closed its descriptors.
  virtual void lose() {}
};

// The sinks of one adapter by their numbers, which are never 0. Thread-safe.
class SinkTable {
 public:
  std::uint32_t add(std::shared_ptr<CompletionSink> sink);
  void remove(std::uint32_t number);
  // Hands out every completion event that the adapter has. The adapter is locked.
  void notify_all(Adapter& adapter);
  void lose();

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<CompletionSink>> sinks_;
};

}  // namespace softhca
