// Where an adapter fetches work requests that nobody hands to it: queues in memory that it shares
// with whoever posts, as the queues of hardware are.
#pragma once

#include <cstdint>

#include "queue/work_request.hpp"

namespace softhca {

// What feeds a send queue; it is looked at when a doorbell rings.
class SendSource {
 public:
  virtual ~SendSource() = default;
  // How many requests wait.
  virtual std::uint32_t available() = 0;
  // Takes the oldest; false if there is none. Inline data stays valid until the next call.
  virtual bool next(SendWr& wr) = 0;
  // The oldest of those taken is done: its place is free.
  virtual void finished() = 0;
  // Forgets what was posted and what was taken.
  virtual void reset() = 0;
};

// What feeds a receive queue; it is looked at when a message wants a receive.
class ReceiveSource {
 public:
  virtual ~ReceiveSource() = default;
  virtual std::uint32_t count() = 0;
  // Takes the oldest, with at most `max_sge` entries; false if there is none.
  virtual bool next(RecvWr& wr, std::uint32_t max_sge) = 0;
  virtual void reset() = 0;
};

}  // namespace softhca
