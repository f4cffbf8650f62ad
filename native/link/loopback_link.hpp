// Packets of an adapter to itself: a bounded queue that forgets what does not fit, as a network
// does.
#pragma once

#include <cstdint>
#include <vector>

#include "link/link.hpp"

namespace softhca {

class LoopbackLink final : public Link {
 public:
  static constexpr std::size_t kCapacity = 256;

  std::size_t send(std::span<const Datagram> datagrams) override;
  std::size_t receive(std::span<Datagram> datagrams) override;
  LinkError join_group(const Gid& group) override;
  LinkError leave_group(const Gid& group) override;

  bool empty() const { return count_ == 0; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  struct Slot {
    Route route;
    std::vector<std::uint8_t> bytes;
  };

  std::vector<Slot> ring_;  // Allocated by the first send.
  std::size_t head_ = 0;    // Oldest datagram that receive() has not given out.
  std::size_t count_ = 0;
  std::size_t lent_ = 0;  // Slots before head_ whose bytes the last receive() lent out.
  std::uint64_t dropped_ = 0;
};

}  // namespace softhca
