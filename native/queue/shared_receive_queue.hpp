// A shared receive queue: a receive ring with a one-shot limit (IBTA Vol 1, 10.2.9).
#pragma once

#include <cstdint>

#include "queue/receive_queue.hpp"

namespace softhca {

struct SharedReceiveQueue {
  std::uint32_t handle = 0;
  std::uint32_t pd = 0;
  std::uint32_t xrcd = 0;   // 0: a basic SRQ.
  std::uint32_t cq = 0;     // XRC: where its receives complete.
  std::uint32_t users = 0;  // Queue pairs that take from it.
  std::uint32_t limit = 0;  // 0: disarmed.
  ReceiveRing ring;

  // True once, when the count has dropped below an armed limit (equal is not enough); disarms it.
  bool limit_reached() {
    if (limit == 0 || ring.count() >= limit) {
      return false;
    }
    limit = 0;
    return true;
  }
};

}  // namespace softhca
