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

  Status() = default;
  Status(int refused, const char* of, const char* because, std::uint64_t with)
      : error(refused), argument(of), rule(because), value(with) {}
  // Every call hands its status on several times. Of a success one field is copied: to read all of
  // them at once, just after they were written one by one, takes longer than the rest of some
  // calls.
  Status(const Status& other) { take(other); }
  Status& operator=(const Status& other) {
    take(other);
    return *this;
  }

  bool ok() const { return error == 0; }
  static Status success() { return {}; }

 private:
  // Fields of a success that was a refusal before say nothing.
  void take(const Status& other) {
    error = other.error;
    if (error == 0) return;
    argument = other.argument;
    rule = other.rule;
    value = other.value;
  }
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
