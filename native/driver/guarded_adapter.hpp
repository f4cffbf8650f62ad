// An adapter and the mutex that whoever shares it holds while calling it.
#pragma once

#include <utility>

#include "adapter/adapter.hpp"
#include "vocabulary/short_mutex.hpp"

namespace softhca {

struct GuardedAdapter {
  explicit GuardedAdapter(AdapterConfig config) : adapter(std::move(config)) {}

  ShortMutex mutex;
  Adapter adapter;
};

}  // namespace softhca
