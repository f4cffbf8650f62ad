#include "faults/fault_set.hpp"

#include <algorithm>
#include <utility>

#include "wire/icrc.hpp"
#include "wire/opcode.hpp"
#include "wire/packet.hpp"

namespace softhca {
namespace {

// Strikes whose numbers are kept.
constexpr std::size_t kMostStrikes = 100'000;
// Of one rule, and of several together: two of them do not wrap, nor does a time that one is added
// to.
constexpr std::uint64_t kMostDelayNs = (std::uint64_t{1} << 63) - 1;

// 53 random bits: every double of [0, 1) that the comparison can tell apart, on any machine.
bool happens(Random& random, double probability) {
  return static_cast<double>(random.next() >> 11) * 0x1p-53 < probability;
}

// True if the address is among those that were given, or none was.
bool is_one_of(const std::vector<Gid>& given, const Gid& address) {
  return given.empty() || std::ranges::find(given, address) != given.end();
}

// The bytes of a datagram that are to be damaged; empty if it has no such part.
ByteSpan part_of(ByteSpan datagram, CorruptPart part) {
  if (datagram.size() < kBthBytes + kIcrcBytes) return datagram;
  const std::size_t headers =
      std::min<std::size_t>(opcode_info(datagram[0]).header_bytes, datagram.size() - kIcrcBytes);
  switch (part) {
    case CorruptPart::HEADERS:
      return datagram.first(headers);
    case CorruptPart::PAYLOAD:
      return datagram.subspan(headers, datagram.size() - kIcrcBytes - headers);
    case CorruptPart::ICRC:
      return datagram.last(kIcrcBytes);
    case CorruptPart::ANYWHERE:
      break;
  }
  return datagram;
}

}  // namespace

const char* fault_action_name(FaultAction action) {
  constexpr const char* kNames[] = {"drop", "duplicate", "delay",  "reorder", "corrupt", "truncate",
                                    "mark", "cnp",       "answer", "tell",    "script"};
  return kNames[static_cast<std::size_t>(action)];
}

bool FaultMatch::operator()(const PacketSight& packet) const {
  const ByteView bytes = packet.datagram;
  if (bytes.size() < kBthBytes || !opcodes.test(bytes[0])) return false;
  if (packet.now_ns < from_ns || packet.now_ns >= until_ns) return false;
  if (link != -1 && link != packet.link) return false;
  if (direction != 0 && (direction == 1) != packet.sending) return false;
  if (!is_one_of(sources, packet.route.source)) return false;
  if (!is_one_of(destinations, packet.route.destination)) return false;
  if (hosts.source != -1 && hosts.source != packet.hosts.source) return false;
  if (hosts.destination != -1 && hosts.destination != packet.hosts.destination) return false;
  if (bytes.size() < min_bytes || bytes.size() > max_bytes) return false;
  if (qpn >= 0 && load_be24(&bytes[5]) != static_cast<std::uint32_t>(qpn)) return false;
  // A range of PSNs may wrap.
  const std::uint32_t psn = load_be24(&bytes[9]);
  return ((psn - first_psn) & 0xffffff) <= ((last_psn - first_psn) & 0xffffff);
}

void FaultVerdict::clear() {
  dropped = marked = cnp = false;
  answer = -1;
  delay_ns = 0;
  overtakers = 0;
  copies.clear();
  scripted.clear();
  struck.clear();
}

std::uint32_t FaultSet::add(FaultRule rule) {
  entries_.push_back(std::make_unique<Entry>(std::move(rule)));
  ++active_;
  ++active_by_action_[static_cast<std::size_t>(entries_.back()->rule.action)];
  return static_cast<std::uint32_t>(entries_.size() - 1);
}

void FaultSet::remove(std::uint32_t number) {
  if (std::exchange(entries_[number]->removed, true)) return;
  --active_;
  --active_by_action_[static_cast<std::size_t>(entries_[number]->rule.action)];
}

bool FaultSet::has(FaultActions actions) const {
  for (std::size_t i = 0; i < active_by_action_.size(); ++i) {
    if ((actions >> i & 1) != 0 && active_by_action_[i] != 0) return true;
  }
  return false;
}

bool FaultSet::strikes(Entry& entry, const PacketSight& packet) {
  const FaultRule& rule = entry.rule;
  if (entry.removed || !rule.match(packet)) return false;
  // Nobody is told of congestion that a notification met.
  if (rule.action == FaultAction::CNP && packet.datagram[0] == kCnpOpcode) return false;
  if (rule.predicate && !rule.predicate(packet)) return false;
  const std::uint64_t number = ++entry.tally.matched;
  if (rule.has_only) return std::ranges::find(rule.only, number) != rule.only.end();
  if (!rule.nth.empty() && std::ranges::find(rule.nth, number) == rule.nth.end()) return false;
  if (rule.every != 0 && number % rule.every != 0) return false;
  if (rule.probability < 1 && !happens(entry.random, rule.probability)) return false;
  return entry.tally.struck < rule.times;
}

bool FaultSet::apply(Entry& entry, const PacketSight& packet, ByteSpan& datagram,
                     FaultVerdict& verdict) {
  const FaultRule& rule = entry.rule;
  const std::uint64_t spread =
      rule.most_delay_ns > rule.delay_ns ? rule.most_delay_ns - rule.delay_ns : 0;
  const auto delay = [&] {
    return rule.delay_ns + (spread == 0 ? 0 : entry.random.below(spread + 1));
  };
  switch (rule.action) {
    case FaultAction::DROP:
      verdict.dropped = true;
      break;
    case FaultAction::DUPLICATE:
      for (std::uint32_t i = 0; i < rule.count; ++i) verdict.copies.push_back(delay());
      break;
    case FaultAction::DELAY:
      verdict.delay_ns = std::min(verdict.delay_ns + delay(), kMostDelayNs);
      break;
    case FaultAction::REORDER:
      verdict.overtakers = 1 + static_cast<std::uint32_t>(entry.random.below(rule.count));
      break;
    case FaultAction::CORRUPT:
      if (const ByteSpan part = part_of(datagram, rule.part); !part.empty()) {
        const std::uint64_t bit = entry.random.below(part.size() * 8);
        part[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
        if (rule.mend_icrc && datagram.size() >= kBthBytes + kIcrcBytes) {
          append_icrc(packet.route, datagram.first(datagram.size() - kIcrcBytes));
        }
      }
      break;
    case FaultAction::TRUNCATE:
      datagram = datagram.first(std::min<std::size_t>(rule.count, datagram.size()));
      break;
    case FaultAction::MARK:
      verdict.marked = true;
      break;
    case FaultAction::CNP:
      verdict.cnp = true;
      break;
    case FaultAction::ANSWER:
      verdict.dropped = true;
      verdict.answer = rule.syndrome;
      break;
    case FaultAction::TELL:
      break;
    case FaultAction::SCRIPT:
      verdict.dropped = rule.script(packet, verdict.scripted);
      return verdict.dropped;
  }
  return true;
}

void FaultSet::judge(const Route& route, ByteSpan& datagram, std::uint64_t now_ns, int link,
                     bool sending, FaultVerdict& verdict, FaultActions actions, HostPair hosts) {
  // Not a range: a predicate may add rules, which are asked from the next packet on.
  const std::size_t count = entries_.size();
  for (std::size_t i = 0; i < count && !verdict.dropped; ++i) {
    Entry& entry = *entries_[i];
    if ((action_bit(entry.rule.action) & actions) == 0) continue;
    const PacketSight packet{route, datagram, now_ns, link, sending, hosts};
    if (!strikes(entry, packet) || !apply(entry, packet, datagram, verdict)) continue;
    ++entry.tally.struck;
    if (entry.strikes.size() < kMostStrikes) entry.strikes.push_back(entry.tally.matched);
    verdict.struck.push_back(static_cast<std::uint32_t>(i));
  }
}

}  // namespace softhca
