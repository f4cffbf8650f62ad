#include "transport/congestion.hpp"

#include <algorithm>
#include <utility>

namespace softhca {

void CongestionControl::reset() {
  limited_ = waits_ = notifies_ = false;
  alpha_ = kOne;
  next_ns_ = notify_again_ns_ = 0;
  alpha_at_ns_ = increase_at_ns_ = kNever;
}

bool CongestionControl::on_mark(std::uint64_t now_ns) {
  if (now_ns < notify_again_ns_) return false;
  notify_again_ns_ = now_ns + settings_.cnp_interval_ns;
  return notifies_ = true;
}

void CongestionControl::on_notification(std::uint64_t now_ns) {
  catch_up(now_ns);
  decay(now_ns);
  if (!limited_) {
    limited_ = true;
    rate_ = settings_.line_bits_per_second;
    next_ns_ = now_ns;
  }
  target_ = rate_;
  // Alpha is below 2^20 and a rate below 2^43: the product fits.
  rate_ = std::max(settings_.least_bits_per_second, rate_ - rate_ * alpha_ / (2 * kOne));
  alpha_ += (kOne - alpha_) >> settings_.gain_shift;
  alpha_at_ns_ = now_ns + settings_.alpha_ns;
  increase_at_ns_ = now_ns + settings_.increase_ns;
  bytes_ = 0;
  time_rounds_ = byte_rounds_ = 0;
}

// What timers would have done until now; nobody has to wake up for it.
void CongestionControl::catch_up(std::uint64_t now_ns) {
  while (limited_ && increase_at_ns_ <= now_ns) {
    decay(increase_at_ns_);
    increase_at_ns_ += settings_.increase_ns;
    ++time_rounds_;
    increase();
  }
}

void CongestionControl::decay(std::uint64_t now_ns) {
  while (alpha_at_ns_ <= now_ns && alpha_ != 0) {
    const std::uint64_t step = alpha_ >> settings_.gain_shift;
    alpha_ = step == 0 ? 0 : alpha_ - step;
    alpha_at_ns_ += settings_.alpha_ns;
  }
}

void CongestionControl::increase() {
  const std::uint32_t most = std::max(time_rounds_, byte_rounds_);
  const std::uint32_t least = std::min(time_rounds_, byte_rounds_);
  if (least > settings_.fast_recovery) {
    target_ += (least - settings_.fast_recovery) * settings_.hyper_bits_per_second;
  } else if (most >= settings_.fast_recovery) {
    target_ += settings_.additive_bits_per_second;
  }
  target_ = std::min(target_, settings_.line_bits_per_second);
  rate_ = (rate_ + target_) / 2;
  // What is left of the way would take for ever.
  if (settings_.line_bits_per_second - rate_ <= settings_.line_bits_per_second >> 10) {
    limited_ = false;
  }
}

bool CongestionControl::may_send(std::uint64_t now_ns) {
  catch_up(now_ns);
  waits_ = limited_ && now_ns < next_ns_;
  return !waits_;
}

void CongestionControl::sent(std::uint64_t bytes, std::uint64_t now_ns) {
  if (!limited_) return;
  next_ns_ = std::max(next_ns_, now_ns) + bytes * 8'000'000'000 / rate_;
  bytes_ += bytes;
  if (bytes_ >= settings_.increase_bytes) {
    bytes_ -= settings_.increase_bytes;
    ++byte_rounds_;
    increase();
  }
}

bool CongestionControl::due(std::uint64_t now_ns) {
  return now_ns >= deadline_ns() && std::exchange(waits_, false);
}

}  // namespace softhca
