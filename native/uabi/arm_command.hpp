// The command by which programs that wait for events arm a completion queue, again and again
// (IB_USER_VERBS_CMD_REQ_NOTIFY_CQ), in the shapes that libraries give it. What looks otherwise in
// any detail is none here, and is left to those who say what is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "vocabulary/bytes.hpp"

namespace softhca {

struct ArmCommand {
  std::uint32_t cq_handle = 0;
  bool solicited_only = false;
};

// Of write(2): struct ib_uverbs_cmd_hdr, then struct ib_uverbs_req_notify_cq.
inline constexpr std::size_t kArmWriteBytes = 16;
std::optional<ArmCommand> arm_command_of_write(ByteView written);

// Of ioctl(2): UVERBS_METHOD_INVOKE_WRITE with the command's number and its structure in place.
inline constexpr std::size_t kArmIoctlBytes = 56;
std::optional<ArmCommand> arm_command_of_ioctl(ByteView given);

}  // namespace softhca
