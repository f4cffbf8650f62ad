// What a request that may leave as one packet becomes on its way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "queue/send_queue.hpp"
#include "transport/queue_pair.hpp"
#include "vocabulary/enums.hpp"
#include "wire/opcode.hpp"
#include "wire/short_packet.hpp"

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

// Its packet, but for the payload, the PSN and what is to be decided about it.
[[gnu::always_inline]] inline void describe_short(const QueuePair& qp, const SendWqe& wqe,
                                                  ShortPacket& packet) {
  packet.opcode = kShortOpcodes[static_cast<std::size_t>(wqe.opcode)];
  packet.solicited = wqe.solicited() && wqe.opcode != WrOpcode::RDMA_WRITE;
  packet.migrated = qp.migration.request_bit();
  packet.pkey = qp.pkey;
  packet.destination_qpn = qp.attr.dest_qp_num;
  packet.immediate = wqe.immediate;
  packet.reth = {wqe.remote_address, wqe.rkey, static_cast<std::uint32_t>(wqe.length)};
}

}  // namespace softhca
