#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/check.hpp"
#include "vocabulary/random.hpp"
#include "wire/crc32.hpp"
#include "wire/crc32_polynomial.hpp"
#include "wire/crc32_routines.hpp"

namespace softhca {
namespace {

std::vector<std::uint8_t> random_bytes(Random& random, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
  return bytes;
}

ByteView view_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// One bit at a time, as the polynomial division is defined.
std::uint32_t crc32_by_definition(std::uint32_t crc, ByteView bytes) {
  std::uint32_t state = ~crc;
  for (const std::uint8_t byte : bytes) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state & 1) != 0 ? state >> 1 ^ 0xEDB88320 : state >> 1;
    }
  }
  return ~state;
}

TEST("crc32: known answers, by every routine") {
  const std::vector<std::uint8_t> zeros(32, 0);
  const std::vector<std::uint8_t> ones(32, 0xff);
  for (const Crc32Routine& routine : crc32_routines()) {
    CHECK_EQ(routine.run(0, {}), 0u);
    CHECK_EQ(routine.run(0x12345678, {}), 0x12345678u);
    CHECK_EQ(routine.run(0, view_of("a")), 0xE8B7BE43u);
    CHECK_EQ(routine.run(0, view_of("123456789")), 0xCBF43926u);
    CHECK_EQ(routine.run(0, view_of("The quick brown fox jumps over the lazy dog")), 0x414FA339u);
    CHECK_EQ(routine.run(0, zeros), 0x190A55ADu);
    CHECK_EQ(routine.run(0, ones), 0xFF6CAB0Bu);
  }
}

TEST("crc32: the table agrees with the definition") {
  Random random(testing::seed());
  const std::vector<std::uint8_t> bytes = random_bytes(random, 300);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    const ByteView view = ByteView(bytes).first(length);
    CHECK_EQ(crc32_by_table(0x8badf00d, view), crc32_by_definition(0x8badf00d, view));
  }
}

TEST("crc32: every routine agrees with the table at every length and alignment") {
  Random random(testing::seed());
  constexpr std::size_t kLongest = 2100;
  const std::vector<std::uint8_t> bytes = random_bytes(random, kLongest + 64);
  for (std::size_t length = 0; length <= kLongest; ++length) {
    // All 64 alignments near the ends of the steps, a few elsewhere, keep this short.
    const std::size_t step = length < 300 ? 1 : 13;
    for (std::size_t offset = length % step; offset < 64; offset += step) {
      const ByteView view = ByteView(bytes).subspan(offset, length);
      const auto crc = static_cast<std::uint32_t>(random.next());
      const std::uint32_t expected = crc32_by_table(crc, view);
      for (const Crc32Routine& routine : crc32_routines()) {
        CHECK_EQ(routine.run(crc, view), expected);
      }
      CHECK_EQ(crc32(crc, view), expected);
    }
  }
}

TEST("crc32: no routine reads outside its bytes") {
  Random random(testing::seed());
  for (std::size_t length = 0; length < 600; ++length) {
    // An allocation of just that size lets the address sanitizer judge.
    const auto exact = std::make_unique<std::uint8_t[]>(length);
    for (std::size_t i = 0; i < length; ++i) exact[i] = static_cast<std::uint8_t>(random.next());
    const ByteView view(exact.get(), length);
    for (const Crc32Routine& routine : crc32_routines()) {
      CHECK_EQ(routine.run(0, view), crc32_by_table(0, view));
    }
  }
}

TEST("crc32: pieces continue each other") {
  Random random(testing::seed());
  const std::vector<std::uint8_t> bytes = random_bytes(random, 5000);
  const std::uint32_t whole = crc32(0, bytes);
  for (int round = 0; round < 500; ++round) {
    const std::size_t cut = random.below(bytes.size() + 1);
    const std::uint32_t head = crc32(0, ByteView(bytes).first(cut));
    CHECK_EQ(crc32(head, ByteView(bytes).subspan(cut)), whole);
  }
}

TEST("crc32: the routine in use is the first of the list, and the table is one of it") {
  CHECK_EQ(crc32_routine(), crc32_routines().front().name);
  const auto list = crc32_routines();
  CHECK_EQ(std::count_if(list.begin(), list.end(),
                         [](const Crc32Routine& one) { return one.run == crc32_by_table; }),
           1);
}

TEST("crc32: arithmetic modulo the polynomial") {
  using namespace crc32_polynomial;
  CHECK_EQ(kReflected, 0xEDB88320u);
  CHECK_EQ(power_of_x(32), kReflected);
  Random random(testing::seed());
  for (int round = 0; round < 1000; ++round) {
    const auto value = static_cast<std::uint32_t>(random.next());
    const auto other = static_cast<std::uint32_t>(random.next());
    CHECK_EQ(over_x(times_x(value)), value);
    CHECK_EQ(multiply(value, kOne), value);
    CHECK_EQ(multiply(value, power_of_x(1)), times_x(value));
    CHECK_EQ(multiply(value, other), multiply(other, value));
  }
}

}  // namespace
}  // namespace softhca
