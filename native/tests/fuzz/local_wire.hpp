// The way to a peer that shares memory with the victim: packets are values, stand for several, and
// have their payload elsewhere. Both directions are the fuzzer's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fuzz/victim.hpp"
#include "transport/local_path.hpp"

namespace softhca::fuzz {

class LocalWire final : public LocalPaths, public LocalPath {
 public:
  explicit LocalWire(Random& random) : random_(random) {}

  // One packet made of a datagram's headers, with as many PSNs and as much payload as it likes.
  // Now and then what was lent is called unreadable instead.
  void hand_over(Victim& victim, const Line& line, std::uint64_t now_ns);
  // A secret has left.
  bool leaked() const { return leaked_; }
  std::uint64_t taken() const { return taken_; }

  LocalPath* path_to(const Gid&, const Gid&) override { return this; }
  void recall(std::uint32_t qpn, LentPayloads which) override;
  bool revoke(std::uint32_t key_index) override;
  bool has_room() override { return random_.below(16) != 0; }
  bool can_fetch(std::span<const MemoryPiece>) override { return random_.below(4) != 0; }
  bool delivers_at_once() const override { return false; }
  std::size_t send_short(std::span<const ShortPacket> packets) override;
  bool lend(const ShortPacket& packet, std::uint32_t qpn, std::uint32_t lkey) override;
  bool send_answer(const WholeAnswer& packet, std::uint32_t qpn, std::uint32_t rkey) override;
  bool send_acknowledge(const PlainAcknowledge&) override { return random_.below(4) != 0; }
  void send(const LocalPacket& packet) override;

 private:
  struct Lent {
    LentPayload what;
    std::vector<std::uint32_t> keys;
  };
  void look_at(ByteView bytes);
  void keep(Lent lent);
  void mutate(const Packet& packet);
  bool call_unreadable(Victim& victim, std::uint64_t now_ns);

  Random& random_;
  std::vector<Lent> lent_;
  std::vector<std::unique_ptr<std::uint8_t[]>> bytes_;  // Each of its exact size.
  std::vector<MemoryPiece> pieces_;
  bool leaked_ = false;
  std::uint64_t taken_ = 0;
};

}  // namespace softhca::fuzz
