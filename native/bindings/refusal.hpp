// The one place where a status becomes an exception.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "vocabulary/status.hpp"

namespace softhca {

// Registers `raise_as`, by which Python names the class that refusals are raised as.
void bind_refusal(nanobind::module_& module);

// `bad_wr` is the work request that was refused, for a list of them.
[[noreturn]] void raise_refusal(const Status& status, nanobind::handle bad_wr = {});
// The same for a value that is not of 64 bits without a sign.
[[noreturn]] void raise_refusal_of(nanobind::handle value, const Status& status,
                                   nanobind::handle bad_wr = nanobind::handle());

inline void demand(const Status& status) {
  if (!status.ok()) raise_refusal(status);
}

template <class T>
T demand(Result<T> result) {
  if (!result.ok()) raise_refusal(result.status);
  return std::move(result.value);
}

}  // namespace softhca
