// What a request that may leave as one packet becomes on its way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "vocabulary/enums.hpp"
#include "wire/opcode.hpp"

namespace softhca {

// By the number of the request.
inline constexpr std::array<std::uint8_t, 4> kShortOpcodes = {
    make_opcode(OpcodeTransport::RC, Operation::RDMA_WRITE_ONLY),
    make_opcode(OpcodeTransport::RC, Operation::RDMA_WRITE_ONLY_WITH_IMMEDIATE),
    make_opcode(OpcodeTransport::RC, Operation::SEND_ONLY),
    make_opcode(OpcodeTransport::RC, Operation::SEND_ONLY_WITH_IMMEDIATE),
};
static_assert(static_cast<int>(WrOpcode::RDMA_WRITE) == 0 &&
              static_cast<int>(WrOpcode::RDMA_WRITE_WITH_IMM) == 1 &&
              static_cast<int>(WrOpcode::SEND) == 2 &&
              static_cast<int>(WrOpcode::SEND_WITH_IMM) == 3);

constexpr bool may_be_short(WrOpcode opcode) {
  return static_cast<std::size_t>(opcode) < kShortOpcodes.size();
}

constexpr std::uint8_t short_opcode_of(WrOpcode opcode) {
  return kShortOpcodes[static_cast<std::size_t>(opcode)];
}

}  // namespace softhca
