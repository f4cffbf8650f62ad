#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/check.hpp"
#include "vocabulary/random.hpp"
#include "wire/packet.hpp"
#include "wire/psn.hpp"
#include "wire/short_packet.hpp"

namespace softhca {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes random_bytes(Random& random, std::size_t count) {
  Bytes bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
  return bytes;
}

std::vector<std::uint8_t> known_opcodes() {
  std::vector<std::uint8_t> opcodes;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const auto value = static_cast<std::uint8_t>(opcode);
    if (opcode_info(value).has(kKnown)) opcodes.push_back(value);
  }
  return opcodes;
}

// Every field random, those included that the opcode does not have.
Packet random_packet(Random& random, std::uint8_t opcode) {
  const auto bits = [&](unsigned count) { return random.next() >> (64 - count); };
  const auto word = [&] { return static_cast<std::uint32_t>(random.next()); };
  Packet packet;
  packet.bth = {.opcode = opcode,
                .solicited = bits(1) != 0,
                .migrated = bits(1) != 0,
                .pad_count = 0,
                .version = 0,
                .pkey = static_cast<std::uint16_t>(bits(16)),
                .fecn = bits(1) != 0,
                .becn = bits(1) != 0,
                .destination_qpn = static_cast<std::uint32_t>(bits(24)),
                .ack_request = bits(1) != 0,
                .psn = static_cast<std::uint32_t>(bits(24))};
  packet.deth = {word(), static_cast<std::uint32_t>(bits(24))};
  packet.reth = {random.next(), word(), word()};
  packet.aeth = {static_cast<std::uint8_t>(bits(8)), static_cast<std::uint32_t>(bits(24))};
  packet.atomic = {random.next(), word(),        random.next(),
                   random.next(), random.next(), random.next()};
  packet.feth = {static_cast<std::uint8_t>(bits(4)), static_cast<std::uint8_t>(bits(2))};
  packet.atomic_original = random.next();
  packet.immediate = word();
  packet.invalidate_rkey = word();
  packet.xrc_srqn = static_cast<std::uint32_t>(bits(24));
  return packet;
}

// The datagram of `packet` with its pad count set, and four bytes where the ICRC goes.
Bytes datagram_of(Packet packet, const Bytes& payload) {
  packet.bth.pad_count = static_cast<std::uint8_t>(-payload.size() & 3);
  Bytes datagram(64);
  datagram.resize(encode_headers(packet, datagram));
  datagram.insert(datagram.end(), payload.begin(), payload.end());
  datagram.resize(datagram.size() + packet.bth.pad_count + kIcrcBytes);
  return datagram;
}

void check_same(const Packet& got, const Packet& sent) {
  const OpcodeInfo& info = opcode_info(sent.bth.opcode);
  CHECK_EQ(got.bth.opcode, sent.bth.opcode);
  CHECK_EQ(got.bth.solicited, sent.bth.solicited);
  CHECK_EQ(got.bth.migrated, sent.bth.migrated);
  CHECK_EQ(got.bth.pkey, sent.bth.pkey);
  CHECK_EQ(got.bth.fecn, sent.bth.fecn);
  CHECK_EQ(got.bth.becn, sent.bth.becn);
  CHECK_EQ(got.bth.destination_qpn, sent.bth.destination_qpn);
  CHECK_EQ(got.bth.ack_request, sent.bth.ack_request);
  CHECK_EQ(got.bth.psn, sent.bth.psn);
  // Headers that the opcode lacks must come out as defaults, not as what a former packet left.
  const Packet expected_deth = info.has(kHasDeth) ? sent : Packet{};
  CHECK_EQ(got.deth.qkey, expected_deth.deth.qkey);
  CHECK_EQ(got.deth.source_qpn, expected_deth.deth.source_qpn);
  const Packet expected_reth = info.has(kHasReth) ? sent : Packet{};
  CHECK_EQ(got.reth.virtual_address, expected_reth.reth.virtual_address);
  CHECK_EQ(got.reth.rkey, expected_reth.reth.rkey);
  CHECK_EQ(got.reth.length, expected_reth.reth.length);
  const Packet expected_aeth = info.has(kHasAeth) ? sent : Packet{};
  CHECK_EQ(got.aeth.syndrome, expected_aeth.aeth.syndrome);
  CHECK_EQ(got.aeth.msn, expected_aeth.aeth.msn);
  const Packet expected_atomic = info.has(kHasAtomicEth) ? sent : Packet{};
  CHECK_EQ(got.atomic.virtual_address, expected_atomic.atomic.virtual_address);
  CHECK_EQ(got.atomic.rkey, expected_atomic.atomic.rkey);
  CHECK_EQ(got.atomic.swap_add, expected_atomic.atomic.swap_add);
  CHECK_EQ(got.atomic.compare, expected_atomic.atomic.compare);
  const Packet expected_masks = info.has(kHasMaskEth) ? sent : Packet{};
  CHECK_EQ(got.atomic.compare_mask, expected_masks.atomic.compare_mask);
  CHECK_EQ(got.atomic.swap_mask, expected_masks.atomic.swap_mask);
  const Packet expected_feth = info.has(kHasFeth) ? sent : Packet{};
  CHECK_EQ(got.feth.placement_type, expected_feth.feth.placement_type);
  CHECK_EQ(got.feth.selectivity, expected_feth.feth.selectivity);
  CHECK_EQ(got.atomic_original, info.has(kHasAtomicAckEth) ? sent.atomic_original : 0);
  CHECK_EQ(got.immediate, info.has(kHasImmDt) ? sent.immediate : 0);
  CHECK_EQ(got.invalidate_rkey, info.has(kHasIeth) ? sent.invalidate_rkey : 0);
  CHECK_EQ(got.xrc_srqn, info.has(kHasXrcEth) ? sent.xrc_srqn : 0);
}

TEST("codec: every opcode survives the round trip, into a packet that was used before") {
  Random random(testing::seed());
  Packet reused;
  for (int round = 0; round < 50; ++round) {
    for (const std::uint8_t opcode : known_opcodes()) {
      const Packet sent = random_packet(random, opcode);
      const bool with_payload = opcode_info(opcode).has(kHasPayload);
      const Bytes payload = random_bytes(random, with_payload ? random.below(4097) : 0);
      const Bytes datagram = datagram_of(sent, payload);
      reused = random_packet(random, opcode);
      CHECK_EQ(decode_packet(datagram, reused), DecodeStatus::OK);
      CHECK(reused.info == &opcode_info(opcode));
      check_same(reused, sent);
      CHECK(std::ranges::equal(reused.payload, payload));
    }
  }
}

TEST("codec: a packet cut at any length is refused, unless the cut is in a payload and fits") {
  Random random(testing::seed());
  for (const std::uint8_t opcode : known_opcodes()) {
    const OpcodeInfo& info = opcode_info(opcode);
    const Bytes payload = random_bytes(random, info.has(kHasPayload) ? 32 : 0);
    const Bytes datagram = datagram_of(random_packet(random, opcode), payload);
    for (std::size_t bytes = 0; bytes < datagram.size(); ++bytes) {
      // A copy of its own size, so that the address sanitizer sees a read behind the end.
      const auto cut = std::make_unique<std::uint8_t[]>(bytes);
      std::copy_n(datagram.begin(), bytes, cut.get());
      Packet packet;
      const DecodeStatus status = decode_packet(ByteView(cut.get(), bytes), packet);
      if (bytes < std::size_t{info.header_bytes} + kIcrcBytes) {
        CHECK_EQ(status, DecodeStatus::TOO_SHORT);
      } else if (bytes % 4 != 0) {
        CHECK_EQ(status, DecodeStatus::BAD_PAD);
      } else {
        CHECK_EQ(status, DecodeStatus::OK);
        CHECK_EQ(packet.payload.size(), bytes - info.header_bytes - kIcrcBytes);
      }
    }
  }
}

TEST("codec: random bytes decode to something inside them or to nothing") {
  Random random(testing::seed());
  unsigned decoded = 0;
  for (int round = 0; round < 200'000; ++round) {
    const std::size_t bytes = random.below(128);
    const auto datagram = std::make_unique<std::uint8_t[]>(bytes);
    for (std::size_t i = 0; i < bytes; ++i) datagram[i] = static_cast<std::uint8_t>(random.next());
    if (bytes > 1 && round % 2 == 0) datagram[1] &= 0xf0;
    Packet packet;
    if (decode_packet(ByteView(datagram.get(), bytes), packet) != DecodeStatus::OK) continue;
    ++decoded;
    CHECK(packet.info != nullptr && packet.info->has(kKnown));
    CHECK_EQ(packet.bth.version, 0);
    CHECK_EQ(packet.info->header_bytes + packet.payload.size() + packet.bth.pad_count + kIcrcBytes,
             bytes);
    CHECK(packet.payload.data() == datagram.get() + packet.info->header_bytes);
    // What was read is written back as it was, apart from reserved bits.
    std::array<std::uint8_t, 64> headers;
    CHECK_EQ(encode_headers(packet, headers), packet.info->header_bytes);
    Packet again;
    Bytes rewritten(datagram.get(), datagram.get() + bytes);
    std::copy_n(headers.begin(), packet.info->header_bytes, rewritten.begin());
    CHECK_EQ(decode_packet(rewritten, again), DecodeStatus::OK);
    check_same(again, packet);
  }
  CHECK(decoded > 1000);
}

DecodeStatus decode(const Bytes& datagram) {
  Packet packet;
  return decode_packet(datagram, packet);
}

TEST("codec: what is refused, and why") {
  const std::uint8_t send = make_opcode(OpcodeTransport::RC, Operation::SEND_ONLY);
  Packet packet;
  packet.bth.opcode = send;
  const Bytes good = datagram_of(packet, Bytes(5));
  CHECK_EQ(decode(good), DecodeStatus::OK);
  CHECK_EQ(decode({}), DecodeStatus::TOO_SHORT);

  Bytes bad = good;
  bad[1] |= 1;
  CHECK_EQ(decode(bad), DecodeStatus::BAD_VERSION);

  bad = good;
  bad[0] = 0x15;
  CHECK_EQ(decode(bad), DecodeStatus::RESERVED_OPCODE);
  bad[0] = 0x40;  // Reliable datagram.
  CHECK_EQ(decode(bad), DecodeStatus::RESERVED_OPCODE);
  bad[0] = 0xff;  // Manufacturer's.
  CHECK_EQ(decode(bad), DecodeStatus::RESERVED_OPCODE);

  bad = datagram_of(packet, {});
  bad[1] |= 0x10;  // One byte of pad, and nothing there to be pad.
  CHECK_EQ(decode(bad), DecodeStatus::BAD_PAD);
  bad = good;
  bad.push_back(0);
  CHECK_EQ(decode(bad), DecodeStatus::BAD_PAD);

  CHECK_EQ(decode(datagram_of(packet, Bytes(kMaxPathMtuBytes))), DecodeStatus::OK);
  bad = datagram_of(packet, {});
  bad.resize(kMaxDatagramBytes + 4);
  CHECK_EQ(decode(bad), DecodeStatus::TOO_LONG);

  for (const Operation operation :
       {Operation::RDMA_READ_REQUEST, Operation::ACKNOWLEDGE, Operation::ATOMIC_ACKNOWLEDGE,
        Operation::COMPARE_SWAP, Operation::FETCH_ADD, Operation::FLUSH}) {
    packet.bth.opcode = make_opcode(OpcodeTransport::RC, operation);
    CHECK_EQ(decode(datagram_of(packet, {})), DecodeStatus::OK);
    CHECK_EQ(decode(datagram_of(packet, Bytes(4))), DecodeStatus::UNEXPECTED_PAYLOAD);
    CHECK_EQ(decode(datagram_of(packet, Bytes(1))), DecodeStatus::UNEXPECTED_PAYLOAD);
  }
}

TEST("codec: the largest datagram that a peer may send is not too long") {
  // SEND and WRITE with every header that can stand in front of a full payload.
  for (const std::uint8_t opcode : known_opcodes()) {
    if (!opcode_info(opcode).has(kHasPayload)) continue;
    Packet packet;
    packet.bth.opcode = opcode;
    CHECK_EQ(decode(datagram_of(packet, Bytes(kMaxPathMtuBytes))), DecodeStatus::OK);
  }
}

TEST("codec: on failure the BTH is there if twelve bytes were") {
  Packet packet;
  packet.bth = {.opcode = 0x15, .destination_qpn = 0x123456, .psn = 0xabcdef};
  std::array<std::uint8_t, 64> headers;
  encode_headers(packet, headers);
  Packet got;
  CHECK_EQ(decode_packet(ByteView(headers).first(12), got), DecodeStatus::RESERVED_OPCODE);
  CHECK_EQ(got.bth.destination_qpn, 0x123456);
  CHECK_EQ(got.bth.psn, 0xabcdef);
  CHECK(got.info == nullptr);
  CHECK(got.payload.empty());
}

TEST("codec: fields lie where IBTA 9.2 and 9.3 draw them") {
  Packet packet;
  packet.bth = {
      .opcode = make_opcode(OpcodeTransport::XRC, Operation::RDMA_WRITE_ONLY_WITH_IMMEDIATE),
      .solicited = true,
      .migrated = true,
      .pad_count = 3,
      .pkey = 0x8001,
      .fecn = false,
      .becn = true,
      .destination_qpn = 0x0a0b0c,
      .ack_request = true,
      .psn = 0x0d0e0f};
  packet.xrc_srqn = 0x112233;
  packet.reth = {.virtual_address = 0x0102030405060708, .rkey = 0xa1a2a3a4, .length = 0xb1b2b3b4};
  packet.immediate = 0xc1c2c3c4;
  Bytes out(64);
  out.resize(encode_headers(packet, out));
  const Bytes expected = {0xab, 0xf0, 0x80, 0x01, 0x40, 0x0a, 0x0b, 0x0c, 0x80, 0x0d, 0x0e, 0x0f,
                          0x00, 0x11, 0x22, 0x33, 1,    2,    3,    4,    5,    6,    7,    8,
                          0xa1, 0xa2, 0xa3, 0xa4, 0xb1, 0xb2, 0xb3, 0xb4, 0xc1, 0xc2, 0xc3, 0xc4};
  CHECK_EQ(out, expected);
}

TEST("codec: each status has a name") {
  CHECK_EQ(decode_status_name(DecodeStatus::OK), "OK");
  CHECK_EQ(decode_status_name(DecodeStatus::UNEXPECTED_PAYLOAD), "UNEXPECTED_PAYLOAD");
  CHECK_EQ(decode_status_name(static_cast<DecodeStatus>(99)), "UNKNOWN");
}

TEST("psn: distance is signed and wraps at 2^24") {
  CHECK_EQ(psn_add(0xffffff, 1), 0u);
  CHECK_EQ(psn_distance(0xffffff, 0), 1);
  CHECK_EQ(psn_distance(0, 0xffffff), -1);
  CHECK_EQ(psn_distance(0, 0x7fffff), 0x7fffff);
  CHECK_EQ(psn_distance(0, 0x800000), -0x800000);
}

TEST("codec: short packets are the same bytes, and nothing else is taken for one") {
  Random random(testing::seed());
  for (int round = 0; round < 20'000; ++round) {
    const auto opcodes = known_opcodes();
    const bool is_short = random.below(2) == 0;
    const std::uint8_t short_opcodes[] = {0x04, 0x05, 0x0a, 0x0b};
    Packet packet = random_packet(
        random, is_short ? short_opcodes[random.below(4)] : opcodes[random.below(opcodes.size())]);
    if (is_short) packet.bth.fecn = packet.bth.becn = false;
    packet.info = &opcode_info(packet.bth.opcode);
    std::array<std::uint8_t, 64> general{};
    const std::size_t bytes = encode_headers(packet, general);
    ShortPacket brief;
    CHECK_EQ(short_form(packet, brief), is_short_opcode(packet.bth.opcode));
    const bool marked = packet.bth.fecn || packet.bth.becn;
    CHECK_EQ(decode_short(general.data(), bytes, brief),
             is_short_opcode(packet.bth.opcode) && !marked);
    if (!is_short) continue;
    std::array<std::uint8_t, 64> own{};
    encode_short(brief, own.data());
    CHECK_EQ(brief.header_bytes(), bytes);
    CHECK(own == general);
    Packet again = packet_of(brief);
    std::array<std::uint8_t, 64> back{};
    CHECK_EQ(encode_headers(again, back), bytes);
    CHECK(back == general);
    CHECK(!decode_short(general.data(), bytes - 1, brief));
    general[1] |= static_cast<std::uint8_t>(1 << random.below(6));  // Pad count or version.
    CHECK(!decode_short(general.data(), bytes, brief));
  }
}

TEST("codec: what is taken for a packet like another is what it is") {
  Random random(testing::seed());
  int alike = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::uint8_t opcodes[] = {0x04, 0x04, 0x05, 0x0a};
    ShortPacket first;
    CHECK(short_form(random_packet(random, opcodes[random.below(4)]), first));
    ShortPacket second = first;
    second.psn = static_cast<std::uint32_t>(random.below(1 << 24));
    second.ack_request = random.below(2) == 0;
    std::array<std::uint8_t, 64> headers{};
    encode_short(second, headers.data());
    // Any bit of what makes it another kind of packet.
    const bool differs = random.below(2) == 0;
    if (differs) headers[random.below(8)] ^= static_cast<std::uint8_t>(1 << random.below(8));
    const std::size_t bytes = random.below(16) == 0 ? random.below(33) : first.header_bytes();
    if (!is_alike(headers.data(), bytes, first, first_of(first))) {
      CHECK(differs || bytes != kBthBytes || first.header_bytes() != kBthBytes);
      continue;
    }
    ++alike;
    ShortPacket taken = first;
    decode_rest(headers.data(), taken);
    ShortPacket known;
    CHECK(decode_short(headers.data(), bytes, known));
    CHECK_EQ(first_of(taken), first_of(known));
    CHECK_EQ(taken.psn, known.psn);
    CHECK_EQ(taken.ack_request, known.ack_request);
    CHECK_EQ(taken.psns, known.psns);
    CHECK_EQ(taken.header_bytes(), bytes);
  }
  CHECK(alike > 2'000);
}

TEST("codec: plain acknowledgements are the same bytes, and nothing else is taken for one") {
  Random random(testing::seed());
  int plain_ones = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto opcodes = known_opcodes();
    const bool is_plain = random.below(2) == 0;
    Packet packet = random_packet(
        random, is_plain ? PlainAcknowledge::kOpcode : opcodes[random.below(opcodes.size())]);
    if (is_plain) {
      packet.bth.fecn = packet.bth.becn = packet.bth.solicited = packet.bth.ack_request = false;
      packet.aeth.syndrome = kSyndromeAck;
    }
    packet.info = &opcode_info(packet.bth.opcode);
    std::array<std::uint8_t, 64> general{};
    const std::size_t bytes = encode_headers(packet, general);
    PlainAcknowledge brief;
    const bool short_one = short_form(packet, brief);
    const bool marked = packet.bth.fecn || packet.bth.becn;
    CHECK_EQ(decode_acknowledge(general.data(), bytes, brief), short_one && !marked);
    plain_ones += short_one ? 1 : 0;
    if (!is_plain) continue;
    CHECK(short_one);
    std::array<std::uint8_t, 64> own{};
    encode_acknowledge(brief, own.data());
    CHECK(own == general);
    std::array<std::uint8_t, 64> back{};
    CHECK_EQ(encode_headers(packet_of(brief), back), bytes);
    CHECK(back == general);
    CHECK(!decode_acknowledge(general.data(), bytes - 1, brief));
    // Any bit of what is fixed: all but MigReq, P_Key, the numbers and reserved seven bits, which
    // the general way does not look at either.
    const std::size_t bits[] = {0, 8, 10, 11, 12, 13, 14, 15, 32, 39, 64, 96, 103};
    const std::size_t bit = bits[random.below(std::size(bits))];
    general[bit / 8] ^= static_cast<std::uint8_t>(0x80 >> bit % 8);
    CHECK(!decode_acknowledge(general.data(), bytes, brief));
  }
  CHECK(plain_ones > 9'000);
}

TEST("codec: READs and whole answers are the same bytes, and nothing else is taken for one") {
  Random random(testing::seed());
  const std::uint8_t wanted[] = {kReadRequestOpcode, WholeAnswer::kOpcode};
  int reads = 0;
  int answers = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto opcodes = known_opcodes();
    const bool is_wanted = random.below(2) == 0;
    Packet packet = random_packet(
        random, is_wanted ? wanted[random.below(2)] : opcodes[random.below(opcodes.size())]);
    if (is_wanted) packet.bth.fecn = packet.bth.becn = false;
    packet.info = &opcode_info(packet.bth.opcode);
    const bool is_read = packet.bth.opcode == kReadRequestOpcode;
    const bool is_answer = packet.bth.opcode == WholeAnswer::kOpcode;
    if (is_answer && random.below(4) != 0) {
      packet.bth.solicited = packet.bth.ack_request = false;
      packet.aeth.syndrome = kSyndromeAck;
    }
    const bool marked = packet.bth.fecn || packet.bth.becn;
    const bool is_plain = is_answer && !marked && !packet.bth.solicited &&
                          !packet.bth.ack_request && packet.aeth.syndrome == kSyndromeAck;
    std::array<std::uint8_t, 64> general{};
    const std::size_t bytes = encode_headers(packet, general);
    ShortPacket read;
    WholeAnswer answer;
    CHECK_EQ(decode_read(general.data(), bytes, read), is_read && !marked);
    CHECK_EQ(decode_answer(general.data(), bytes, answer), is_plain);
    CHECK(!decode_read(general.data(), bytes - 1, read));
    CHECK(!decode_answer(general.data(), bytes - 1, answer));
    std::array<std::uint8_t, 64> own{};
    if (is_read && !marked) {
      CHECK(decode_read(general.data(), bytes, read));
      encode_short(read, own.data());
      CHECK(own == general);
      ++reads;
    }
    if (is_plain) {
      CHECK(decode_answer(general.data(), bytes, answer));
      encode_answer(answer, own.data());
      CHECK(own == general);
      own = {};
      CHECK_EQ(encode_headers(packet_of(answer), own), bytes);
      CHECK(own == general);
      ++answers;
    }
  }
  CHECK(reads > 3'000);
  CHECK(answers > 2'000);
}

}  // namespace
}  // namespace softhca
