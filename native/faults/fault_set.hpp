// Applies rules to packets, one after the other, and remembers how often each struck.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "faults/fault_rule.hpp"

namespace softhca {

struct FaultTally {
  std::uint64_t matched = 0;
  std::uint64_t struck = 0;
};

// What the rules decided about one packet.
struct FaultVerdict {
  bool dropped = false;
  bool marked = false;  // Congestion experienced.
  bool cnp = false;
  int answer = -1;  // Syndrome of a NAK that is to go back.
  std::uint64_t delay_ns = 0;
  std::uint32_t overtakers = 0;            // Held until so many later packets went by.
  std::vector<std::uint64_t> copies;       // Delays of more of the same packet.
  std::vector<ScriptedDatagram> scripted;  // In place of the packet, which is dropped.
  std::vector<std::uint32_t> struck;       // Rules, by number.

  void clear();
};

// Kinds of rules, as bits.
using FaultActions = std::uint32_t;
constexpr FaultActions action_bit(FaultAction action) {
  return FaultActions{1} << static_cast<unsigned>(action);
}
// What takes the responder's place: asked when the responder would take the packet.
inline constexpr FaultActions kInPlace = action_bit(FaultAction::ANSWER);

class FaultSet {
 public:
  // Returns its number. Rules are asked in the order in which they were added.
  std::uint32_t add(FaultRule rule);
  void remove(std::uint32_t number);
  bool empty() const { return active_ == 0; }
  const FaultRule& rule(std::uint32_t number) const { return entries_[number]->rule; }
  FaultTally tally(std::uint32_t number) const { return entries_[number]->tally; }
  // Numbers of the matches that a rule struck, the first of them.
  const std::vector<std::uint64_t>& strikes(std::uint32_t number) const {
    return entries_[number]->strikes;
  }
  std::size_t size() const { return entries_.size(); }

  // There is a rule of one of these kinds.
  bool has(FaultActions actions) const;

  // Asks the rules of these kinds. `datagram` is changed in place, and its length with it. `link`
  // and `hosts` as in PacketSight.
  void judge(const Route& route, ByteSpan& datagram, std::uint64_t now_ns, int link, bool sending,
             FaultVerdict& verdict, FaultActions actions = ~kInPlace, HostPair hosts = {});

 private:
  struct Entry {
    explicit Entry(FaultRule given) : rule(std::move(given)), random(rule.seed) {}
    FaultRule rule;
    Random random;
    FaultTally tally;
    std::vector<std::uint64_t> strikes;
    bool removed = false;
  };

  bool strikes(Entry& entry, const PacketSight& packet);
  // False: a script left the packet alone.
  bool apply(Entry& entry, const PacketSight& packet, ByteSpan& datagram, FaultVerdict& verdict);

  // Behind pointers: a predicate may add rules.
  std::vector<std::unique_ptr<Entry>> entries_;
  std::size_t active_ = 0;
  std::array<std::size_t, 32> active_by_action_{};
};

}  // namespace softhca
