// The opcode table, built at compile time from one row per operation.
#include "wire/opcode.hpp"

#include <array>
#include <cstddef>
#include <string_view>

namespace softhca {
namespace {

constexpr std::size_t kNameBytes = 48;
constexpr std::uint8_t kBth = 12;

// Which transports have an operation.
constexpr unsigned kInRc = 1;
constexpr unsigned kInUc = 2;
constexpr unsigned kInUd = 4;
constexpr unsigned kInMasked = 8;
// XRC has whatever RC has (Annex A14), so a row says only RC.
constexpr unsigned kInRcUc = kInRc | kInUc;
constexpr unsigned kInAll = kInRc | kInUc | kInUd;

struct OperationRow {
  Operation operation;
  std::string_view name;
  unsigned transports;
  std::uint32_t flags;
};

constexpr std::uint32_t kSendPacket = kRequest | kSend | kHasPayload;
constexpr std::uint32_t kWritePacket = kRequest | kWrite | kHasPayload;
constexpr std::uint32_t kReadResponsePacket = kResponse | kReadResponse | kHasPayload;
constexpr std::uint32_t kAtomicPacket = kRequest | kAtomicRequest | kOnly | kHasAtomicEth;

constexpr OperationRow kRows[] = {
    {Operation::SEND_FIRST, "SEND_FIRST", kInRcUc, kSendPacket | kFirst},
    {Operation::SEND_MIDDLE, "SEND_MIDDLE", kInRcUc, kSendPacket | kMiddle},
    {Operation::SEND_LAST, "SEND_LAST", kInRcUc, kSendPacket | kLast},
    {Operation::SEND_LAST_WITH_IMMEDIATE, "SEND_LAST_WITH_IMMEDIATE", kInRcUc,
     kSendPacket | kLast | kHasImmDt},
    {Operation::SEND_ONLY, "SEND_ONLY", kInAll, kSendPacket | kOnly},
    {Operation::SEND_ONLY_WITH_IMMEDIATE, "SEND_ONLY_WITH_IMMEDIATE", kInAll,
     kSendPacket | kOnly | kHasImmDt},
    {Operation::RDMA_WRITE_FIRST, "RDMA_WRITE_FIRST", kInRcUc, kWritePacket | kFirst | kHasReth},
    {Operation::RDMA_WRITE_MIDDLE, "RDMA_WRITE_MIDDLE", kInRcUc, kWritePacket | kMiddle},
    {Operation::RDMA_WRITE_LAST, "RDMA_WRITE_LAST", kInRcUc, kWritePacket | kLast},
    {Operation::RDMA_WRITE_LAST_WITH_IMMEDIATE, "RDMA_WRITE_LAST_WITH_IMMEDIATE", kInRcUc,
     kWritePacket | kLast | kHasImmDt},
    {Operation::RDMA_WRITE_ONLY, "RDMA_WRITE_ONLY", kInRcUc, kWritePacket | kOnly | kHasReth},
    {Operation::RDMA_WRITE_ONLY_WITH_IMMEDIATE, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", kInRcUc,
     kWritePacket | kOnly | kHasReth | kHasImmDt},
    {Operation::RDMA_READ_REQUEST, "RDMA_READ_REQUEST", kInRc,
     kRequest | kReadRequest | kOnly | kHasReth},
    {Operation::RDMA_READ_RESPONSE_FIRST, "RDMA_READ_RESPONSE_FIRST", kInRc,
     kReadResponsePacket | kFirst | kHasAeth},
    {Operation::RDMA_READ_RESPONSE_MIDDLE, "RDMA_READ_RESPONSE_MIDDLE", kInRc,
     kReadResponsePacket | kMiddle},
    {Operation::RDMA_READ_RESPONSE_LAST, "RDMA_READ_RESPONSE_LAST", kInRc,
     kReadResponsePacket | kLast | kHasAeth},
    {Operation::RDMA_READ_RESPONSE_ONLY, "RDMA_READ_RESPONSE_ONLY", kInRc,
     kReadResponsePacket | kOnly | kHasAeth},
    {Operation::ACKNOWLEDGE, "ACKNOWLEDGE", kInRc, kResponse | kAcknowledge | kHasAeth},
    {Operation::ATOMIC_ACKNOWLEDGE, "ATOMIC_ACKNOWLEDGE", kInRc,
     kResponse | kAcknowledge | kHasAeth | kHasAtomicAckEth},
    {Operation::COMPARE_SWAP, "COMPARE_SWAP", kInRc, kAtomicPacket},
    {Operation::FETCH_ADD, "FETCH_ADD", kInRc, kAtomicPacket},
    {Operation::SEND_LAST_WITH_INVALIDATE, "SEND_LAST_WITH_INVALIDATE", kInRc,
     kSendPacket | kLast | kHasIeth},
    {Operation::SEND_ONLY_WITH_INVALIDATE, "SEND_ONLY_WITH_INVALIDATE", kInRc,
     kSendPacket | kOnly | kHasIeth},
    {Operation::FLUSH, "FLUSH", kInRc, kRequest | kFlush | kOnly | kHasFeth | kHasReth},
    {Operation::ATOMIC_WRITE, "ATOMIC_WRITE", kInRc,
     kRequest | kAtomicWrite | kOnly | kHasReth | kHasPayload},
    {Operation::COMPARE_SWAP, "MASKED_COMPARE_SWAP", kInMasked,
     kAtomicPacket | kMasked | kHasMaskEth},
    {Operation::FETCH_ADD, "MASKED_FETCH_ADD", kInMasked, kAtomicPacket | kMasked},
};

struct HeaderSize {
  std::uint32_t flag;
  std::uint8_t bytes;
};

// IBTA Vol 1, 9.3; FETH is from Annex A19.
constexpr HeaderSize kHeaderSizes[] = {
    {kHasXrcEth, 4},   {kHasDeth, 8}, {kHasFeth, 4},  {kHasReth, 16}, {kHasAtomicEth, 28},
    {kHasMaskEth, 16}, {kHasAeth, 4}, {kHasImmDt, 4}, {kHasIeth, 4},  {kHasAtomicAckEth, 8},
};

using Name = std::array<char, kNameBytes>;

constexpr Name join(std::string_view prefix, std::string_view name) {
  Name joined{};
  std::size_t at = 0;
  for (const char c : prefix) joined[at++] = c;
  for (const char c : name) joined[at++] = c;
  return joined;
}

struct TransportColumn {
  OpcodeTransport transport;
  std::string_view prefix;
  unsigned has;  // Rows whose transports intersect this belong to the transport.
};

constexpr TransportColumn kColumns[] = {
    {OpcodeTransport::RC, "RC_", kInRc},
    {OpcodeTransport::UC, "UC_", kInUc},
    {OpcodeTransport::UD, "UD_", kInUd},
    {OpcodeTransport::XRC, "XRC_", kInRc},
    {OpcodeTransport::MASKED_RC, "RC_", kInMasked},
    {OpcodeTransport::MASKED_XRC, "XRC_", kInMasked},
};

constexpr std::array<Name, 256> build_names() {
  std::array<Name, 256> names{};
  for (const TransportColumn& column : kColumns) {
    for (const OperationRow& row : kRows) {
      if ((row.transports & column.has) == 0) continue;
      names[make_opcode(column.transport, row.operation)] = join(column.prefix, row.name);
    }
  }
  names[kCnpOpcode] = join("CNP", "");
  return names;
}

constexpr std::array<Name, 256> kNames = build_names();

constexpr OpcodeInfo describe(std::uint8_t opcode, std::uint32_t flags) {
  OpcodeInfo info;
  info.name = kNames[opcode].data();
  info.flags = flags | kKnown;
  info.header_bytes = kBth;
  for (const HeaderSize& header : kHeaderSizes) {
    if ((flags & header.flag) != 0) {
      info.header_bytes = static_cast<std::uint8_t>(info.header_bytes + header.bytes);
    }
  }
  return info;
}

constexpr std::array<OpcodeInfo, 256> build_table() {
  std::array<OpcodeInfo, 256> table{};
  for (const TransportColumn& column : kColumns) {
    for (const OperationRow& row : kRows) {
      if ((row.transports & column.has) == 0) continue;
      std::uint32_t flags = row.flags;
      if (column.transport == OpcodeTransport::UD) flags |= kHasDeth;
      const std::uint8_t opcode = make_opcode(column.transport, row.operation);
      const bool xrc = queue_pair_transport(opcode) == OpcodeTransport::XRC;
      if (xrc && (flags & kRequest) != 0) flags |= kHasXrcEth;
      table[opcode] = describe(opcode, flags);
    }
  }
  // Annex A17.9.3: sixteen reserved bytes follow the BTH of a congestion notification packet.
  table[kCnpOpcode] = describe(kCnpOpcode, kCnp | kHasPayload);
  return table;
}

constexpr std::array<OpcodeInfo, 256> kTable = build_table();

}  // namespace

const OpcodeInfo& opcode_info(std::uint8_t opcode) { return kTable[opcode]; }

}  // namespace softhca
