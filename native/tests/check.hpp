// The test harness: tests register themselves, a failed check prints what it saw and ends its test.
//
//   TEST("psn: the window wraps") {
//     CHECK(psn_distance(0xffffff, 0) > 0);
//     CHECK_EQ(psn_add(0xffffff, 1), 0u);
//   }
//
// A check may stand in any function that a test calls. One that fails on a thread other than the
// test's cannot end the test; it is counted and the thread goes on.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace softhca::testing {

struct Registration {
  Registration(const char* name, void (*run)());
};

// The seed of this run, which main() prints. SOFTHCA_TEST_SEED in the environment sets it.
std::uint64_t seed();

// Prints and counts a failure, then ends the test by an exception if this is the test's thread.
void fail(const char* file, int line, const std::string& what);

// As std::integral, without the character types and bool, which std::cmp_equal refuses.
template <typename T>
concept Number = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                 !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                 !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

template <typename T>
concept Printable = requires(std::ostream& out, const T& value) {
  out << value;
};

template <typename T>
void print(std::ostream& out, const T& value) {
  if constexpr (std::same_as<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_enum_v<T>) {
    print(out, static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (Number<T>) {
    out << +value;
    if (value > T{9}) out << " (0x" << std::hex << +value << std::dec << ")";
  } else if constexpr (std::convertible_to<T, std::string_view>) {
    out << '"' << std::string_view(value) << '"';
  } else if constexpr (Printable<T>) {
    out << value;
  } else if constexpr (std::ranges::input_range<const T>) {
    constexpr int kShown = 64;
    int shown = 0;
    out << "{";
    for (const auto& element : value) {
      if (shown == kShown) out << ", ...";
      if (shown == kShown) break;
      if (shown++ > 0) out << ", ";
      print(out, element);
    }
    out << "}";
  } else {
    out << "a value that cannot be printed";
  }
}

template <typename Left, typename Right>
bool equal(const Left& left, const Right& right) {
  if constexpr (Number<Left> && Number<Right>) {
    return std::cmp_equal(left, right);
  } else if constexpr (std::convertible_to<Left, std::string_view> &&
                       std::convertible_to<Right, std::string_view>) {
    return std::string_view(left) == std::string_view(right);
  } else {
    return left == right;
  }
}

template <typename Left, typename Right>
void check_equal(const char* file, int line, const char* left_text, const char* right_text,
                 const Left& left, const Right& right) {
  if (equal(left, right)) return;
  std::ostringstream what;
  what << left_text << " == " << right_text << "\n    left:  ";
  print(what, left);
  what << "\n    right: ";
  print(what, right);
  fail(file, line, what.str());
}

}  // namespace softhca::testing

#define SOFTHCA_TEST_JOIN_NOW(left, right) left##right
#define SOFTHCA_TEST_JOIN(left, right) SOFTHCA_TEST_JOIN_NOW(left, right)

#define TEST(name)                                                                        \
  static void SOFTHCA_TEST_JOIN(test_at_line_, __LINE__)();                               \
  static const ::softhca::testing::Registration SOFTHCA_TEST_JOIN(                        \
      registration_at_line_, __LINE__)(name, SOFTHCA_TEST_JOIN(test_at_line_, __LINE__)); \
  static void SOFTHCA_TEST_JOIN(test_at_line_, __LINE__)()

#define CHECK(...)                                                \
  do {                                                            \
    if (!static_cast<bool>(__VA_ARGS__)) {                        \
      ::softhca::testing::fail(__FILE__, __LINE__, #__VA_ARGS__); \
    }                                                             \
  } while (false)

#define CHECK_EQ(left, right) \
  ::softhca::testing::check_equal(__FILE__, __LINE__, #left, #right, (left), (right))
