#include <set>
#include <string>

#include "tests/check.hpp"
#include "wire/opcode.hpp"

namespace softhca {
namespace {

std::string name_of(unsigned opcode) {
  const char* name = opcode_info(static_cast<std::uint8_t>(opcode)).name;
  return name == nullptr ? "" : name;
}

unsigned header_bytes_of(unsigned opcode) {
  return opcode_info(static_cast<std::uint8_t>(opcode)).header_bytes;
}

bool has(unsigned opcode, std::uint32_t mask) {
  return opcode_info(static_cast<std::uint8_t>(opcode)).has(mask);
}

// IBTA Vol 1, table 35, transcribed apart from the table under test: operation, name, bytes of
// extended headers in RC.
struct RcRow {
  unsigned operation;
  const char* name;
  unsigned extended_bytes;
  bool in_uc;
  bool is_request;
};
constexpr RcRow kRcRows[] = {
    {0x00, "SEND_FIRST", 0, true, true},
    {0x01, "SEND_MIDDLE", 0, true, true},
    {0x02, "SEND_LAST", 0, true, true},
    {0x03, "SEND_LAST_WITH_IMMEDIATE", 4, true, true},
    {0x04, "SEND_ONLY", 0, true, true},
    {0x05, "SEND_ONLY_WITH_IMMEDIATE", 4, true, true},
    {0x06, "RDMA_WRITE_FIRST", 16, true, true},
    {0x07, "RDMA_WRITE_MIDDLE", 0, true, true},
    {0x08, "RDMA_WRITE_LAST", 0, true, true},
    {0x09, "RDMA_WRITE_LAST_WITH_IMMEDIATE", 4, true, true},
    {0x0a, "RDMA_WRITE_ONLY", 16, true, true},
    {0x0b, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", 20, true, true},
    {0x0c, "RDMA_READ_REQUEST", 16, false, true},
    {0x0d, "RDMA_READ_RESPONSE_FIRST", 4, false, false},
    {0x0e, "RDMA_READ_RESPONSE_MIDDLE", 0, false, false},
    {0x0f, "RDMA_READ_RESPONSE_LAST", 4, false, false},
    {0x10, "RDMA_READ_RESPONSE_ONLY", 4, false, false},
    {0x11, "ACKNOWLEDGE", 4, false, false},
    {0x12, "ATOMIC_ACKNOWLEDGE", 12, false, false},
    {0x13, "COMPARE_SWAP", 28, false, true},
    {0x14, "FETCH_ADD", 28, false, true},
    {0x16, "SEND_LAST_WITH_INVALIDATE", 4, false, true},
    {0x17, "SEND_ONLY_WITH_INVALIDATE", 4, false, true},
    {0x1c, "FLUSH", 20, false, true},
    {0x1d, "ATOMIC_WRITE", 16, false, true},
};

TEST("opcode: every transport has the operations of table 35, with their header sizes") {
  std::set<unsigned> expected;
  for (const RcRow& row : kRcRows) {
    const unsigned rc = row.operation;
    CHECK_EQ(name_of(rc), std::string("RC_") + row.name);
    CHECK_EQ(header_bytes_of(rc), 12 + row.extended_bytes);
    expected.insert(rc);

    const unsigned xrc = 0xa0 | row.operation;
    CHECK_EQ(name_of(xrc), std::string("XRC_") + row.name);
    CHECK_EQ(header_bytes_of(xrc), 12 + row.extended_bytes + (row.is_request ? 4 : 0));
    CHECK_EQ(has(xrc, kHasXrcEth), row.is_request);
    expected.insert(xrc);

    if (row.in_uc) {
      const unsigned uc = 0x20 | row.operation;
      CHECK_EQ(name_of(uc), std::string("UC_") + row.name);
      CHECK_EQ(header_bytes_of(uc), 12 + row.extended_bytes);
      expected.insert(uc);
    }
    CHECK_EQ(has(rc, kRequest), row.is_request);
    CHECK_EQ(has(rc, kResponse), !row.is_request);
  }
  CHECK_EQ(name_of(0x64), "UD_SEND_ONLY");
  CHECK_EQ(header_bytes_of(0x64), 12 + 8);
  CHECK_EQ(name_of(0x65), "UD_SEND_ONLY_WITH_IMMEDIATE");
  CHECK_EQ(header_bytes_of(0x65), 12 + 8 + 4);
  CHECK_EQ(name_of(0x81), "CNP");
  CHECK_EQ(header_bytes_of(0x81), 12);
  // Ours, in the range of the manufacturers.
  CHECK_EQ(name_of(0xd3), "RC_MASKED_COMPARE_SWAP");
  CHECK_EQ(header_bytes_of(0xd3), 12 + 28 + 16);
  CHECK_EQ(name_of(0xd4), "RC_MASKED_FETCH_ADD");
  CHECK_EQ(header_bytes_of(0xd4), 12 + 28);
  CHECK_EQ(name_of(0xf3), "XRC_MASKED_COMPARE_SWAP");
  CHECK_EQ(header_bytes_of(0xf3), 12 + 4 + 28 + 16);
  CHECK_EQ(name_of(0xf4), "XRC_MASKED_FETCH_ADD");
  expected.insert({0x64, 0x65, 0x81, 0xd3, 0xd4, 0xf3, 0xf4});

  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    CHECK_EQ(has(opcode, kKnown), expected.contains(opcode));
    CHECK_EQ(name_of(opcode).empty(), !expected.contains(opcode));
    if (!expected.contains(opcode)) CHECK_EQ(opcode_info(std::uint8_t(opcode)).flags, 0u);
  }
}

TEST("opcode: names are all different") {
  std::set<std::string> names;
  unsigned known = 0;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (!has(opcode, kKnown)) continue;
    ++known;
    names.insert(name_of(opcode));
  }
  CHECK_EQ(names.size(), known);
}

TEST("opcode: a payload only where the operation has one") {
  for (unsigned transport : {0x00u, 0xa0u}) {
    for (unsigned operation : {0x0cu, 0x11u, 0x12u, 0x13u, 0x14u, 0x1cu}) {
      CHECK(!has(transport | operation, kHasPayload));
    }
    for (unsigned operation : {0x00u, 0x04u, 0x08u, 0x0bu, 0x0du, 0x10u, 0x16u, 0x1du}) {
      CHECK(has(transport | operation, kHasPayload));
    }
  }
}

TEST("opcode: position in the message") {
  constexpr std::uint32_t kPosition = kFirst | kMiddle | kLast | kOnly;
  const auto position = [](unsigned opcode) {
    return opcode_info(static_cast<std::uint8_t>(opcode)).flags & kPosition;
  };
  CHECK_EQ(position(0x00), std::uint32_t{kFirst});
  CHECK_EQ(position(0x07), std::uint32_t{kMiddle});
  CHECK_EQ(position(0x16), std::uint32_t{kLast});
  CHECK_EQ(position(0x65), std::uint32_t{kOnly});
  CHECK_EQ(position(0x0f), std::uint32_t{kLast});
  // A request of one packet begins and ends its message; an acknowledgement is no message.
  CHECK_EQ(position(0x0c), std::uint32_t{kOnly});
  CHECK_EQ(position(0x14), std::uint32_t{kOnly});
  CHECK_EQ(position(0x11), 0u);
}

}  // namespace
}  // namespace softhca
