// Where completions go instead of being polled: a queue in memory that whoever polls it shares.
#pragma once

#include <cstdint>

#include "queue/completion.hpp"

namespace softhca {

class CompletionOutlet {
 public:
  virtual ~CompletionOutlet() = default;
  // False: it is full, and nothing was added.
  virtual bool put(const Completion& completion) = 0;
  // How many were not taken out yet.
  virtual std::uint32_t count() const = 0;
  // Begins with what waits in another outlet, whose place it takes; false if that is too much.
  virtual bool continue_from(const CompletionOutlet& before) = 0;
};

}  // namespace softhca
