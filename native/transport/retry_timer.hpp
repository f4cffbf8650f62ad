// The clocks of a reliable requester: the local ACK timeout, the RNR delay, and the early probe.
//
// The ACK timeout is never shorter than IBTA's 4.096 us x 2^timeout, and has a minimum of its own
// as IBTA Vol 1, 9.7.6.1.3 allows. Long before it runs out, once a round trip has been measured, a
// probe repeats the oldest unacknowledged packet; probes do not count against retry_cnt. A peer
// that never answered is never probed, nor is one that is no adapter: how soon a program answers
// depends on what else it does, and that nothing comes says little about a loss.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/outgoing_packet.hpp"
#include "wire/syndrome.hpp"

namespace softhca {

class RetryTimer {
 public:
  // Threads of a busy machine are kept from running for tens of milliseconds; that is no dead peer.
  static constexpr std::uint64_t kSmallestTimeoutNs = 32'000'000;
  static constexpr std::uint64_t kSmallestProbeNs = 500'000;
  static constexpr std::uint64_t kAssumedRoundTripNs = 500'000;
  static constexpr std::uint64_t kLargestProbeNs = 500'000'000;
  // A time-out that is put off so often for what is still unread has waited for as long as the
  // shortest one; strangers who never pause do not put it off any longer.
  static constexpr std::uint64_t kPutOffNs = 1'000'000;
  static constexpr std::uint32_t kMostPutOff = kSmallestTimeoutNs / kPutOffNs;
  // Probes keep their pace for so many before they slow down by half.
  static constexpr std::uint32_t kProbesPerPace = 8;

  void configure(std::uint8_t timeout_code, bool probes) {
    const std::uint64_t asked = ack_timeout_ns(timeout_code);
    timeout_ns_ = asked == 0 ? 0 : std::max(asked, kSmallestTimeoutNs);
    probes_ = probes;
  }
  void reset() {
    stop();
    round_trip_ns_ = 0;
  }

  bool running() const { return running_; }
  // Something is under way, or something was acknowledged: begin anew.
  void restart(std::uint64_t now_ns) {
    running_ = true;
    ack_deadline_ns_ = timeout_ns_ == 0 ? kNever : now_ns + timeout_ns_;
    unanswered_ = put_off_ = 0;
    set_probe(now_ns);
  }
  // The answer may have come and not be read yet. False: that was said too often.
  bool put_off(std::uint64_t now_ns) {
    if (put_off_ == kMostPutOff) return false;
    ++put_off_;
    ack_deadline_ns_ = now_ns + kPutOffNs;
    return true;
  }
  void stop() {
    running_ = false;
    ack_deadline_ns_ = probe_deadline_ns_ = kNever;
  }

  std::uint64_t deadline_ns() const { return std::min(ack_deadline_ns_, probe_deadline_ns_); }
  bool ack_due(std::uint64_t now_ns) const { return now_ns >= ack_deadline_ns_; }
  bool probe_due(std::uint64_t now_ns) const { return now_ns >= probe_deadline_ns_; }
  void after_probe(std::uint64_t now_ns) {
    ++unanswered_;
    set_probe(now_ns);
  }

  // Should an acknowledgement fail to come, a probe asks for it.
  bool will_probe() const { return probes_ && is_adapter_ && round_trip_ns_ != 0; }

  // The peer lives. Until a round trip has been measured without a loss in it, one is assumed.
  void answered(bool by_adapter) {
    is_adapter_ = by_adapter;
    if (round_trip_ns_ == 0) {
      round_trip_ns_ = kAssumedRoundTripNs;
    }
  }
  // 0: nothing is known of this one.
  void measured(std::uint64_t round_trip_ns) {
    if (round_trip_ns == 0) return;
    round_trip_ns_ = round_trip_ns_ == 0 ? round_trip_ns : (7 * round_trip_ns_ + round_trip_ns) / 8;
  }
  // By two answers, with an error now and then: it moves a little at a time, and what is measured
  // beyond doubt moves it back.
  void measured_late(std::uint64_t round_trip_ns) {
    measured(std::min(round_trip_ns, 4 * (round_trip_ns_ + kSmallestProbeNs)));
  }

 private:
  void set_probe(std::uint64_t now_ns) {
    probe_deadline_ns_ = kNever;
    if (!will_probe()) {
      return;
    }
    const std::uint64_t wait = std::min((2 * round_trip_ns_ + kSmallestProbeNs)
                                            << std::min(unanswered_ / kProbesPerPace, 12u),
                                        kLargestProbeNs);
    probe_deadline_ns_ = now_ns + wait;
  }

  bool running_ = false;
  bool probes_ = false;
  bool is_adapter_ = true;
  std::uint32_t unanswered_ = 0;
  std::uint32_t put_off_ = 0;
  std::uint64_t timeout_ns_ = 0;
  std::uint64_t round_trip_ns_ = 0;
  std::uint64_t ack_deadline_ns_ = kNever;
  std::uint64_t probe_deadline_ns_ = kNever;
};

}  // namespace softhca
