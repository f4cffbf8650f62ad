// Rules of faults around a real link: the same words as in a simulated fabric.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "faults/fault_set.hpp"
#include "link/link.hpp"
#include "vocabulary/time.hpp"

namespace softhca {

// Rules that links judge by while a program adds some.
struct SharedFaults {
  std::mutex mutex;
  FaultSet rules;
};

// What a rule says of time counts from the first round that the link took part in.
class ScriptedLink final : public Link {
 public:
  ScriptedLink(std::unique_ptr<Link> inner, std::shared_ptr<SharedFaults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  std::size_t send(std::span<const Datagram> datagrams) override;
  std::size_t receive(std::span<Datagram> datagrams) override;
  int ready_fd() const override { return inner_->ready_fd(); }
  bool blocked() const override { return !sending_.ready.empty(); }
  bool holding() const override {
    return !sending_.held.empty() || !receiving_.held.empty() || inner_->holding();
  }
  void release() override;
  std::uint64_t pass_time(std::uint64_t now_ns) override;
  int failure() const override { return inner_->failure(); }
  void lose(int error) override { inner_->lose(error); }
  LinkError join_group(const Gid& group) override { return inner_->join_group(group); }
  LinkError leave_group(const Gid& group) override { return inner_->leave_group(group); }
  void abandon() override { inner_->abandon(); }

 private:
  struct Owned {
    Route route;
    std::vector<std::uint8_t> bytes;
    std::uint64_t due_ns = 0;
    std::uint32_t overtakers = 0;
  };
  struct Direction {
    std::deque<Owned> ready;
    std::vector<Owned> held;
    std::vector<Owned> delayed;  // In the order of their times.
  };

  void put(Direction& to, const Datagram& datagram, bool sending);
  void pass(Direction& to, Owned owned, std::uint64_t delay_ns);
  void let_go(Direction& of);
  void drain();

  std::unique_ptr<Link> inner_;
  std::shared_ptr<SharedFaults> faults_;
  FaultVerdict verdict_;
  Direction sending_;
  Direction receiving_;
  std::size_t lent_ = 0;  // At the front of receiving_: the caller still looks at them.
  std::uint64_t now_ns_ = 0;
  std::uint64_t start_ns_ = 0;
};

}  // namespace softhca
