// Which peers are held to the full ICRC although their IPv4 identification cannot be seen.
//
// Solving for the identification (wire/icrc.hpp) lets one corrupted packet in some 2^15 pass. A
// peer whose packets fit what is assumed twice in a row sends from a socket like ours, and from
// then on nothing else is believed of it but a place in a train, which a train that was taken apart
// on its way shows: one corrupted packet in some 2^26. Unless many more packets than those that fit
// can only be explained by another identification: then another stack has taken the address, or has
// had it all the time, and somebody forged what fitted. He shall not have more refused than he
// sends: each that fits makes up for one that does not, and the next time it takes many of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "vocabulary/gid.hpp"
#include "vocabulary/random.hpp"
#include "vocabulary/route.hpp"
#include "wire/icrc.hpp"

namespace softhca {

class IcrcTrust {
 public:
  // Whoever sends chooses its addresses, and shall not know which of them share a place in the
  // table: thousands would have each of their packets look through all of them.
  explicit IcrcTrust(std::uint64_t secret) : peers_(0, Hash{Random(~secret).next() | 1}) {}

  // May a packet of `source` with this verdict be taken?
  bool accept(const Gid& source, const IcrcVerdict& verdict) {
    if (!verdict.good || !source.is_ipv4()) {
      return verdict.good;
    }
    if (peers_.size() >= kMaxPeers && !peers_.contains(source)) {
      peers_.clear();
    }
    Peer& peer = peers_[source];
    if (!verdict.solved) {
      peer.zeros = peer.zeros < peer.zeros_to_trust ? peer.zeros + 1 : peer.zeros;
      peer.others -= peer.others > 0 ? 1 : 0;
      return true;
    }
    if (peer.zeros < peer.zeros_to_trust) {
      peer.zeros = 0;
      return true;
    }
    if (verdict.identification < kMaxTrainPackets && verdict.dont_fragment) {
      return true;
    }
    if (++peer.others < kOthersToDistrust) {
      return false;
    }
    peer = {.zeros_to_trust = kZerosToTrustAgain};
    return true;
  }

  // For tests: the place of a peer in the table, and how many share it.
  std::size_t bucket(const Gid& source) const { return peers_.bucket(source); }
  std::size_t sharing_with(const Gid& source) const {
    return peers_.bucket_size(peers_.bucket(source));
  }

 private:
  static constexpr std::size_t kMaxPeers = 4096;
  static constexpr std::uint32_t kZerosToTrust = 2;
  static constexpr std::uint32_t kZerosToTrustAgain = 64;
  static constexpr std::uint32_t kOthersToDistrust = 8;

  struct Peer {
    std::uint32_t zeros = 0;
    std::uint32_t others = 0;
    std::uint32_t zeros_to_trust = kZerosToTrust;
  };
  struct Hash {
    std::uint64_t factor;  // Odd.
    std::size_t operator()(const Gid& gid) const {
      std::uint64_t low = 0;
      std::memcpy(&low, gid.raw.data() + 8, 8);
      const std::uint64_t mixed = low * factor;
      return static_cast<std::size_t>((mixed ^ mixed >> 32) * factor >> 20);
    }
  };
  // Only looked up, never walked: its order decides nothing.
  std::unordered_map<Gid, Peer, Hash> peers_;
};

}  // namespace softhca
