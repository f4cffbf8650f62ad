#include "uabi/arm_command.hpp"

#include <cstring>

namespace softhca {
namespace {

constexpr std::uint32_t kReqNotifyCq = 23;
constexpr std::uint32_t kDriverRxe = 14;
constexpr std::size_t kAttributeBytes = 16;
constexpr std::uint16_t kCoreIn = 0;
constexpr std::uint16_t kWriteCommand = 2;
constexpr std::uint16_t kInPlaceBytes = 8;

template <class Value>
Value load(ByteView from, std::size_t at) {
  Value value;
  std::memcpy(&value, from.data() + at, sizeof(value));
  return value;
}

ArmCommand command_at(ByteView from, std::size_t at) {
  return {load<std::uint32_t>(from, at), load<std::uint32_t>(from, at + 4) != 0};
}

}  // namespace

std::optional<ArmCommand> arm_command_of_write(ByteView written) {
  if (written.size() != kArmWriteBytes || load<std::uint32_t>(written, 0) != kReqNotifyCq ||
      load<std::uint16_t>(written, 4) * 4 != kArmWriteBytes ||
      load<std::uint16_t>(written, 6) != 0) {
    return std::nullopt;
  }
  return command_at(written, 8);
}

std::optional<ArmCommand> arm_command_of_ioctl(ByteView given) {
  constexpr std::size_t kHeaderBytes = kArmIoctlBytes - 2 * kAttributeBytes;
  // Length, object, method, attributes; reserved; driver, and reserved.
  if (given.size() != kArmIoctlBytes || load<std::uint16_t>(given, 0) != kArmIoctlBytes ||
      load<std::uint32_t>(given, 2) != 0 || load<std::uint16_t>(given, 6) != 2 ||
      load<std::uint64_t>(given, 8) != 0 || load<std::uint32_t>(given, 16) != kDriverRxe ||
      load<std::uint32_t>(given, 20) != 0) {
    return std::nullopt;
  }
  std::optional<std::size_t> number_at;
  std::optional<std::size_t> structure_at;
  for (std::size_t at = kHeaderBytes; at < kArmIoctlBytes; at += kAttributeBytes) {
    // Its name, its length, flags, and reserved; then the value.
    const auto name = load<std::uint16_t>(given, at);
    if (load<std::uint16_t>(given, at + 2) != kInPlaceBytes ||
        load<std::uint16_t>(given, at + 6) != 0) {
      return std::nullopt;
    }
    if (name == kWriteCommand) number_at = at + 8;
    if (name == kCoreIn) structure_at = at + 8;
  }
  if (!number_at || !structure_at || load<std::uint64_t>(given, *number_at) != kReqNotifyCq) {
    return std::nullopt;
  }
  return command_at(given, *structure_at);
}

}  // namespace softhca
