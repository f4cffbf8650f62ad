// How long the way to the peer and back is: one packet at a time is timed.
//
// If a probe goes out meanwhile, whose answer came cannot be told, the packet's or the probe's, and
// on a long way that would be so for ever. It can be told once both have been answered: then the
// answers are as far apart as packet and probe were. What a network doubles comes closer, and what
// is repeated after a loss comes at any time.
#pragma once

#include <cstdint>

#include "wire/psn.hpp"

namespace softhca {

class RoundTrip {
 public:
  bool is_timing() const { return state_ != State::IDLE; }

  void begin(std::uint32_t psn, std::uint64_t now_ns) {
    state_ = State::TIMED;
    psn_ = psn;
    sent_ns_ = now_ns;
  }
  void probed(std::uint64_t now_ns) {
    if (state_ != State::TIMED) return;
    state_ = State::PROBED;
    apart_ns_ = now_ns - sent_ns_;
  }
  // What is timed is sent anew, or waits at the peer.
  void stop() { state_ = State::IDLE; }
  // Something was lost: answers that come twice say nothing any more.
  void forget() { doubtful_ns_ = 0; }

  // Everything before `unacked_psn` is acknowledged. Nanoseconds; 0: not known.
  std::uint64_t acknowledged(std::uint32_t unacked_psn, std::uint64_t now_ns) {
    if (psn_distance(psn_, unacked_psn) <= 0) return 0;
    const std::uint64_t took_ns = now_ns - sent_ns_;
    const bool is_known = state_ == State::TIMED;
    state_ = State::IDLE;
    if (is_known) return took_ns;
    doubtful_ns_ = took_ns;
    answered_ns_ = now_ns;
    return 0;
  }

  bool is_doubtful() const { return doubtful_ns_ != 0; }
  // An answer to what was answered before. Nanoseconds; 0: not known.
  std::uint64_t answered_again(std::uint64_t now_ns) {
    const std::uint64_t apart_ns = now_ns - answered_ns_;
    if (apart_ns < apart_ns_ / 2) return 0;
    const std::uint64_t took_ns = apart_ns <= 2 * apart_ns_ ? doubtful_ns_ : 0;
    doubtful_ns_ = 0;
    return took_ns;
  }

 private:
  enum class State : std::uint8_t { IDLE, TIMED, PROBED };

  State state_ = State::IDLE;
  std::uint32_t psn_ = 0;
  std::uint64_t sent_ns_ = 0;
  std::uint64_t apart_ns_ = 0;     // From the packet to its first probe.
  std::uint64_t doubtful_ns_ = 0;  // What it was until the first answer; 0: nothing to find out.
  std::uint64_t answered_ns_ = 0;
};

}  // namespace softhca
