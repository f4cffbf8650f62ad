#include "memory/access_gate.hpp"

namespace softhca {
namespace {

// Looks this often before it sleeps: a copy of a packet takes less than a microsecond.
constexpr int kSpins = 200;

}  // namespace

void AccessGate::wait_outside() {
  do {
    leave();
    for (std::uint32_t seen = state_.load(); (seen & kClosed) != 0; seen = state_.load()) {
      state_.wait(seen);
    }
  } while ((state_.fetch_add(kOneInside) & kClosed) != 0);
}

void AccessGate::close() {
  std::uint32_t seen = state_.fetch_or(kClosed) | kClosed;
  for (int spin = 0; seen != kClosed; seen = state_.load()) {
    if (++spin > kSpins) state_.wait(seen);
  }
}

void AccessGate::open() {
  state_.fetch_and(~kClosed);
  state_.notify_all();
}

AccessGate& access_gate() {
  static AccessGate gate;
  return gate;
}

}  // namespace softhca
