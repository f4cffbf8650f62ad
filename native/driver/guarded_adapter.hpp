// An adapter and the mutex that whoever shares it holds while calling it.
#pragma once

#include <utility>

#include "adapter/adapter.hpp"
#include "driver/counter_clock.hpp"
#include "vocabulary/short_mutex.hpp"

namespace softhca {

struct GuardedAdapter {
  explicit GuardedAdapter(AdapterConfig config) : adapter(std::move(config)) {}

  ShortMutex mutex;
  CounterClock clock;  // The adapter's.
  Adapter adapter;
};

}  // namespace softhca
