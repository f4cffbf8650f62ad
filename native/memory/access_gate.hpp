// The gate that accesses to watched memory pass one by one, so that whoever reports a range gone
// can be sure that no copy into it is still under way.
#pragma once

#include <atomic>
#include <cstdint>

namespace softhca {

// Takes no lock and allocates nothing. Accesses hold it around one guarded copy and never block
// inside; a copy may fault in pages, which does not depend on whoever closes the gate.
class AccessGate {
 public:
  // Waits while the gate is closed.
  void enter() {
    if ((state_.fetch_add(kOneInside) & kClosed) != 0) wait_outside();
  }
  void leave() {
    if ((state_.fetch_sub(kOneInside) & kClosed) != 0) state_.notify_all();
  }

  // Lets nobody in, and waits until those inside have left. One closes at a time.
  void close();
  void open();

  // For a child of fork(), where those inside do not exist.
  void reset() { state_.store(0); }

 private:
  static constexpr std::uint32_t kClosed = 1;
  static constexpr std::uint32_t kOneInside = 2;

  void wait_outside();

  std::atomic<std::uint32_t> state_{0};
};

// One for the process, as its mappings are.
AccessGate& access_gate();

// Passes the gate for as long as it lives.
class GatePass {
 public:
  GatePass() { access_gate().enter(); }
  ~GatePass() { access_gate().leave(); }
  GatePass(const GatePass&) = delete;
  GatePass& operator=(const GatePass&) = delete;
};

}  // namespace softhca
