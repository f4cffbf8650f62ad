// DCQCN for one queue pair: who gets marked packets tells the sender (notification point), and the
// sender slows down and comes back (reaction point). After Zhu et al., "Congestion Control for
// Large-Scale RDMA Deployments", SIGCOMM 2015; in integers, so that every machine computes the
// same.
#pragma once

#include <cstdint>

#include "vocabulary/time.hpp"

namespace softhca {

// Defaults are the paper's.
struct CongestionSettings {
  std::uint64_t line_bits_per_second = 0;  // Where rates begin, and end; 0: no control at all.
  std::uint64_t least_bits_per_second = 10'000'000;
  std::uint64_t cnp_interval_ns = 50'000;     // One notification at most, per queue pair.
  std::uint64_t alpha_ns = 55'000;            // Without a notification for so long alpha decays.
  std::uint64_t increase_ns = 55'000;         // The timer and
  std::uint64_t increase_bytes = 10'000'000;  // the byte counter that let the rate grow.
  std::uint64_t additive_bits_per_second = 40'000'000;
  std::uint64_t hyper_bits_per_second = 200'000'000;
  std::uint32_t fast_recovery = 5;  // Rounds.
  std::uint32_t gain_shift = 8;     // Alpha moves by 1/2^8 of what is left.

  bool on() const { return line_bits_per_second != 0; }
};

class CongestionControl {
 public:
  explicit CongestionControl(const CongestionSettings& settings) : settings_(settings) {}

  void reset();

  // --- notification point
  // A packet came marked. True: the peer is to be told, which is not so for each of them.
  bool on_mark(std::uint64_t now_ns);
  bool wants_notification() const { return notifies_; }
  void notified() { notifies_ = false; }

  // --- reaction point
  void on_notification(std::uint64_t now_ns);
  // The next packet may leave now. If not, deadline_ns() tells when.
  bool may_send(std::uint64_t now_ns);
  void sent(std::uint64_t bytes, std::uint64_t now_ns);
  std::uint64_t deadline_ns() const { return waits_ ? next_ns_ : kNever; }
  // The deadline has come; true once.
  bool due(std::uint64_t now_ns);

  // 0: as fast as the line.
  std::uint64_t rate_bits_per_second() const { return limited_ ? rate_ : 0; }

 private:
  void catch_up(std::uint64_t now_ns);
  void decay(std::uint64_t now_ns);
  void increase();

  static constexpr std::uint64_t kOne = 1u << 20;  // Of alpha.

  const CongestionSettings settings_;
  bool limited_ = false;
  bool waits_ = false;  // A packet was refused.
  std::uint64_t rate_ = 0;
  std::uint64_t target_ = 0;
  std::uint64_t alpha_ = kOne;
  std::uint64_t next_ns_ = 0;  // When the next packet may leave.
  std::uint64_t alpha_at_ns_ = kNever;
  std::uint64_t increase_at_ns_ = kNever;
  std::uint64_t bytes_ = 0;
  std::uint32_t time_rounds_ = 0;
  std::uint32_t byte_rounds_ = 0;
  bool notifies_ = false;
  std::uint64_t notify_again_ns_ = 0;
};

}  // namespace softhca
