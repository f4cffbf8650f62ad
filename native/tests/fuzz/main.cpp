// fuzz_packets [PACKETS [SEED]]: mutated packets against the parser and connected queue pairs, and
// as many again from a peer that shares memory. Meant for ASan and UBSan.
//
// Fails when a byte changed that no packet may change, when a secret byte left, or when an emitted
// packet is malformed.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "fuzz/local_wire.hpp"
#include "fuzz/mutator.hpp"
#include "fuzz/victim.hpp"
#include "wire/icrc.hpp"

namespace softhca::fuzz {
namespace {

struct Tally {
  std::uint64_t packets = 0;
  std::uint64_t answers = 0;
  std::uint64_t handed_over = 0;
  std::uint64_t errors = 0;
};

// Takes what the adapter sends. False: a malformed packet, or one with a secret in it.
bool take_output(Victim& victim, std::uint64_t now_ns, Tally& tally) {
  std::array<std::uint8_t, kMaxDatagramBytes> buffer;
  OutgoingPacket out;
  for (int burst = 0; burst < 64; ++burst) {
    if (!victim.adapter().next_packet(buffer, out, now_ns)) {
      break;
    }
    ++tally.answers;
    Packet packet;
    if (decode_packet(out.datagram, packet) != DecodeStatus::OK ||
        !check_icrc(out.route, out.datagram, IcrcLevel::STRICT).good) {
      std::printf("the adapter sent a malformed packet\n");
      return false;
    }
    // A run of secret bytes cannot be chance: what a peer wrote is random, the rest is public.
    const auto& payload = packet.payload;
    for (std::size_t at = 0; at + 4 <= payload.size(); ++at) {
      if (std::all_of(payload.begin() + static_cast<std::ptrdiff_t>(at),
                      payload.begin() + static_cast<std::ptrdiff_t>(at + 4),
                      [](std::uint8_t byte) { return byte == Arena::kSecret; })) {
        std::printf("a secret byte left in %s\n", packet.info->name);
        return false;
      }
    }
  }
  return true;
}

// `near`: the peer is one that shares memory, and most packets come that way.
bool run(std::uint64_t packets, std::uint64_t seed, bool near, Tally& tally) {
  Random random(seed);
  LocalWire wire(random);
  Victim victim(seed, near ? &wire : nullptr);
  std::uint64_t now_ns = 1;
  Route route;
  std::vector<std::uint8_t> bytes;
  for (std::uint64_t given = 0; given < packets; ++given, ++tally.packets) {
    const Line& line = victim.lines()[victim.random().below(victim.lines().size())];
    now_ns += 1000;
    if (near && random.below(8) != 0) {
      wire.hand_over(victim, line, now_ns);
    } else {
      make_packet(victim, line, route, bytes);
      // A copy of its exact size, so that one byte beyond is found.
      const std::vector<std::uint8_t> exact(bytes);
      victim.adapter().receive(route, exact, now_ns);
    }
    while (near && victim.adapter().exchange(now_ns)) {
    }
    if (wire.leaked()) {
      std::printf("a secret byte left for a neighbour\n");
      return false;
    }
    if (!take_output(victim, now_ns, tally)) {
      return false;
    }
    if (tally.packets % 8 == 0) {
      victim.adapter().advance(now_ns);
      tally.errors += victim.refresh(now_ns);
    }
    if (tally.packets % 256 == 0) {
      const std::size_t at = victim.arena().find_trespass();
      if (at != Arena::npos) {
        std::printf("byte %zu of the arena changed against its rights\n", at);
        return false;
      }
    }
  }
  tally.handed_over += wire.taken();
  victim.leave();
  return true;
}

}  // namespace
}  // namespace softhca::fuzz

int main(int argc, char** argv) {
  const std::uint64_t packets = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  softhca::fuzz::Tally tally;
  const bool good = softhca::fuzz::run(packets, seed, false, tally) &&
                    softhca::fuzz::run(packets, seed, true, tally);
  std::printf(
      "%llu packets in, %llu out, %llu handed over, %llu queue pairs taken to error\n"
      "%d passed, %d failed\n",
      static_cast<unsigned long long>(tally.packets),
      static_cast<unsigned long long>(tally.answers),
      static_cast<unsigned long long>(tally.handed_over),
      static_cast<unsigned long long>(tally.errors), good ? 1 : 0, good ? 0 : 1);
  return good ? 0 : 1;
}
