// An adapter and the mutex that whoever shares it holds while calling it.
#pragma once

#include <mutex>
#include <utility>

#include "adapter/adapter.hpp"

namespace softhca {

struct GuardedAdapter {
  explicit GuardedAdapter(AdapterConfig config) : adapter(std::move(config)) {}

  std::mutex mutex;
  Adapter adapter;
};

}  // namespace softhca
