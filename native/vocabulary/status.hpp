// How a verb says no: an errno, the argument that was wrong, its value, and the rule it broke.
// Nothing is thrown.
#pragma once

#include <cerrno>
#include <cstdint>

namespace softhca {

struct [[nodiscard]] Status {
  int error = 0;  // errno; 0 is success, of which the other fields say nothing.
  // Name of the offending argument, as the Python API spells it.
  const char* argument;
  const char* rule;  // What it must satisfy; static text.
  std::uint64_t value;
  std::uint64_t bound;  // Of the limit that the rule ends with.

  static constexpr std::uint64_t kNoBound = ~std::uint64_t{0};

  Status() {}  // NOLINT(modernize-use-equals-default): that would set what is not looked at.
  Status(int refused, const char* of, const char* because, std::uint64_t with,
         std::uint64_t limit = kNoBound)
      : error(refused), argument(of), rule(because), value(with), bound(limit) {}
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
    bound = other.bound;
  }
};

inline Status refuse(int error, const char* argument, std::uint64_t value, const char* rule,
                     std::uint64_t bound = Status::kNoBound) {
  return {error, argument, rule, value, bound};
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
