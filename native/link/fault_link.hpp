// A bad network around any link: loses, doubles, reorders and damages datagrams, the same way for
// the same seed and the same sequence of datagrams.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "link/link.hpp"
#include "vocabulary/random.hpp"

namespace softhca {

// Probabilities per datagram, 0 to 1, each drawn on its own.
struct FaultRates {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;  // Held back until one to four later datagrams have passed.
  double corrupt = 0;  // One random bit flipped.

  bool any() const { return drop > 0 || duplicate > 0 || reorder > 0 || corrupt > 0; }
};

struct FaultSettings {
  FaultRates send;
  FaultRates receive;
  std::uint64_t seed = 1;

  bool any() const { return send.any() || receive.any(); }
};

struct FaultCounters {
  std::uint64_t passed = 0;  // Datagrams that came in, whatever became of them.
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
};

// One direction: datagrams in, others out.
class FaultStage {
 public:
  struct Owned {
    Route route;
    std::vector<std::uint8_t> bytes;
    std::uint64_t overtakers = 0;  // Datagrams that still have to pass it while it is held.
  };

  FaultStage(const FaultRates& rates, std::uint64_t seed) : rates_(rates), random_(seed) {}

  void put(const Datagram& datagram);
  bool empty() const { return ready_.empty(); }
  bool holding() const { return !held_.empty(); }
  void release();
  std::size_t ready_count() const { return ready_.size(); }
  const Owned& ready(std::size_t index) const { return ready_[index]; }
  void pop(std::size_t count);
  const FaultCounters& counters() const { return counters_; }

 private:
  Owned copy_of(const Datagram& datagram);
  void emit(Owned datagram);
  bool happens(double probability);

  FaultRates rates_;
  Random random_;
  FaultCounters counters_;
  std::deque<Owned> ready_;
  std::deque<Owned> held_;
  std::vector<std::vector<std::uint8_t>> spare_;  // Buffers to use again.
};

class FaultLink final : public Link {
 public:
  FaultLink(std::unique_ptr<Link> inner, const FaultSettings& settings);

  std::size_t send(std::span<const Datagram> datagrams) override;
  std::size_t receive(std::span<Datagram> datagrams) override;
  int arrival_fd() const override { return inner_->arrival_fd(); }
  int ready_fd() const override { return inner_->ready_fd(); }
  bool blocked() const override { return !sending_.empty(); }
  bool holding() const override {
    return sending_.holding() || receiving_.holding() || inner_->holding();
  }
  void release() override;
  int failure() const override { return inner_->failure(); }
  void lose(int error) override { inner_->lose(error); }
  LinkError join_group(const Gid& group) override { return inner_->join_group(group); }
  LinkError move_to(unsigned interface) override { return inner_->move_to(interface); }
  LinkError leave_group(const Gid& group) override { return inner_->leave_group(group); }
  void numbers_packets(const Gid& peer) override { inner_->numbers_packets(peer); }
  void abandon() override { inner_->abandon(); }

  const FaultCounters& send_counters() const { return sending_.counters(); }
  const FaultCounters& receive_counters() const { return receiving_.counters(); }

 private:
  void drain_sending();

  std::unique_ptr<Link> inner_;
  FaultStage sending_;
  FaultStage receiving_;
  std::size_t lent_ = 0;  // Datagrams at the front of receiving_ that the caller still looks at.
};

}  // namespace softhca
