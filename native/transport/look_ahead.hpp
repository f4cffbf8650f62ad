// Where payloads go before it is their packets' turn.
#pragma once

#include <cstdint>

namespace softhca {

// Packets to one queue pair whose places are known, and which will be taken in this order before
// anything else is done. They are all requests, or all answers.
struct LookAhead {
  std::uint32_t qpn = 0;       // 0: there is none yet.
  std::uint32_t psns = 0;      // Of requests.
  std::uint32_t receives = 0;  // That they take.
  std::uint32_t answers = 0;
};

}  // namespace softhca
