// How a verb says no: an errno, the argument that was wrong, its value, and the rule it broke.
// Nothing is thrown.
#pragma once

#include <cerrno>
#include <cstdint>

namespace softhca {

struct [[nodiscard]] Status {
  int error = 0;              // errno; 0 is success.
  const char* argument = "";  // Name of the offending argument, as the Python API spells it.
  const char* rule = "";      // What it must satisfy; static text.
  std::uint64_t value = 0;

  bool ok() const { return error == 0; }
  static Status success() { return {}; }
};

inline Status refuse(int error, const char* argument, std::uint64_t value, const char* rule) {
  return {error, argument, rule, value};
}

// A status and, where it is ok, a value.
template <class T>
struct [[nodiscard]] Result {
  Status status;
  T value{};

  Result(Status failed) : status(failed) {}              // NOLINT(google-explicit-constructor)
  Result(T result) : value(static_cast<T&&>(result)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return status.ok(); }
};

}  // namespace softhca
