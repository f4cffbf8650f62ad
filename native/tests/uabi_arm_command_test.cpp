// The command that arms a completion queue, in the shapes of libraries and in others.
#include <cstring>
#include <vector>

#include "tests/check.hpp"
#include "uabi/arm_command.hpp"

namespace softhca {
namespace {

using Bytes = std::vector<std::uint8_t>;

template <class Value>
void put(Bytes& bytes, std::size_t at, Value value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

Bytes written(std::uint32_t cq_handle, std::uint32_t solicited_only) {
  Bytes bytes(kArmWriteBytes);
  put<std::uint32_t>(bytes, 0, 23);
  put<std::uint16_t>(bytes, 4, 4);  // Words, the header's included.
  put(bytes, 8, cq_handle);
  put(bytes, 12, solicited_only);
  return bytes;
}

// The number of the command in one attribute, the structure in another, in either order.
Bytes given(std::uint32_t cq_handle, std::uint32_t solicited_only, std::size_t number = 24,
            std::size_t structure = 40) {
  Bytes bytes(kArmIoctlBytes);
  put<std::uint16_t>(bytes, 0, kArmIoctlBytes);
  put<std::uint16_t>(bytes, 6, 2);
  put<std::uint32_t>(bytes, 16, 14);
  for (const std::size_t at : {number, structure}) {
    put<std::uint16_t>(bytes, at + 2, 8);
    put<std::uint16_t>(bytes, at + 4, 1);
  }
  put<std::uint16_t>(bytes, number, 2);
  put<std::uint64_t>(bytes, number + 8, 23);
  put(bytes, structure + 8, cq_handle);
  put(bytes, structure + 12, solicited_only);
  return bytes;
}

TEST("uabi arm command: what libraries write is understood") {
  for (const std::uint32_t solicited : {0u, 1u, 7u}) {
    const auto command = arm_command_of_write(written(0x01020304, solicited));
    CHECK(command.has_value());
    CHECK_EQ(command->cq_handle, 0x01020304u);
    CHECK_EQ(command->solicited_only, solicited != 0);
  }
}

TEST("uabi arm command: and what they give to ioctl") {
  for (const Bytes& bytes : {given(9, 1), given(9, 1, 40, 24)}) {
    const auto command = arm_command_of_ioctl(bytes);
    CHECK(command.has_value());
    CHECK_EQ(command->cq_handle, 9u);
    CHECK(command->solicited_only);
  }
  CHECK(!arm_command_of_ioctl(given(9, 0))->solicited_only);
}

// Whether a command is still taken after each single bit of it was changed: only in the structure,
// and in flags, which say nothing about an attribute that is known.
template <class Understand>
void check_bits(const Bytes& right, Understand understand, const std::vector<bool>& free) {
  for (std::size_t bit = 0; bit < 8 * right.size(); ++bit) {
    Bytes bytes = right;
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    CHECK_EQ(understand(bytes).has_value(), static_cast<bool>(free[bit / 8]));
  }
}

std::vector<bool> bytes_in(std::size_t count, std::initializer_list<std::pair<int, int>> ranges) {
  std::vector<bool> in(count);
  for (const auto& [first, last] : ranges) {
    for (int at = first; at <= last; ++at) in[static_cast<std::size_t>(at)] = true;
  }
  return in;
}

TEST("uabi arm command: any other bit makes it something else") {
  check_bits(written(5, 1), arm_command_of_write, bytes_in(kArmWriteBytes, {{8, 15}}));
  check_bits(given(5, 1), arm_command_of_ioctl,
             bytes_in(kArmIoctlBytes, {{28, 29}, {44, 45}, {48, 55}}));
}

TEST("uabi arm command: any other length makes it something else") {
  for (std::size_t length = 0; length < 80; ++length) {
    Bytes bytes = written(5, 1);
    bytes.resize(length);
    CHECK_EQ(arm_command_of_write(bytes).has_value(), length == kArmWriteBytes);
    bytes = given(5, 1);
    bytes.resize(length);
    CHECK_EQ(arm_command_of_ioctl(bytes).has_value(), length == kArmIoctlBytes);
  }
}

}  // namespace
}  // namespace softhca
