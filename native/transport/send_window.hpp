// How many packets may be under way: grows with what is acknowledged, shrinks when something was
// lost, so that a receiver with a small socket buffer is found out instead of flooded.
#pragma once

#include <algorithm>
#include <cstdint>

namespace softhca {

class SendWindow {
 public:
  static constexpr std::uint32_t kInitial = 32;
  static constexpr std::uint32_t kSmallest = 8;
  static constexpr std::uint32_t kLargest = 128;

  void reset() { *this = SendWindow(); }
  std::uint32_t packets() const { return packets_; }
  bool smallest() const { return packets_ <= kSmallest; }
  bool has_lost() const { return threshold_ != kLargest; }

  void on_acknowledged(std::uint32_t count) {
    if (packets_ < threshold_) {
      packets_ = std::min(packets_ + count, kLargest);
      return;
    }
    credit_ += count;
    if (credit_ >= packets_) {
      credit_ = 0;
      packets_ = std::min(packets_ + 1, kLargest);
    }
  }
  void on_loss() {
    threshold_ = packets_ = std::max(packets_ / 2, kSmallest);
    credit_ = 0;
  }

 private:
  std::uint32_t packets_ = kInitial;
  std::uint32_t threshold_ = kLargest;
  std::uint32_t credit_ = 0;
};

}  // namespace softhca
