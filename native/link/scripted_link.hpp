// Rules of faults around a real link: the same words as in a simulated fabric.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "faults/fault_set.hpp"
#include "faults/in_place.hpp"
#include "link/link.hpp"
#include "vocabulary/time.hpp"

namespace softhca {

// Rules that links judge by while a program adds some, be it in a predicate.
struct SharedFaults {
  std::recursive_mutex mutex;
  FaultSet rules;
  std::atomic<std::thread::id> judge;  // The thread that judges a packet; none: nobody does.

  // The caller is a predicate or script of these rules. It must not wait for who judges by them.
  bool are_judged_here() const { return judge.load() == std::this_thread::get_id(); }
};

// Looks up the queue pair that a packet is for; false if there is none.
using FindAddressee = std::function<bool(std::uint32_t qpn, Addressee& addressee)>;

// What strikes packets that came, once they have: it takes a queue pair of this side.
inline constexpr FaultActions kAtArrival = kInPlace | action_bit(FaultAction::CNP);

// What a rule says of time counts from the first round that the link took part in.
class ScriptedLink final : public Link {
 public:
  // `find` is called between two rounds of the adapter, without locks.
  ScriptedLink(std::unique_ptr<Link> inner, std::shared_ptr<SharedFaults> faults,
               FindAddressee find)
      : inner_(std::move(inner)), faults_(std::move(faults)), find_(std::move(find)) {}

  std::size_t send(std::span<const Datagram> datagrams) override;
  std::size_t receive(std::span<Datagram> datagrams) override;
  int arrival_fd() const override { return inner_->arrival_fd(); }
  int ready_fd() const override { return inner_->ready_fd(); }
  bool blocked() const override { return !sending_.ready.empty(); }
  bool holding() const override {
    return !sending_.held.empty() || !receiving_.held.empty() || inner_->holding();
  }
  void numbers_packets(const Gid& peer) override { inner_->numbers_packets(peer); }
  void release() override;
  std::uint64_t pass_time(std::uint64_t now_ns) override;
  int failure() const override { return inner_->failure(); }
  void lose(int error) override { inner_->lose(error); }
  LinkError join_group(const Gid& group) override { return inner_->join_group(group); }
  LinkError move_to(unsigned interface) override { return inner_->move_to(interface); }
  LinkError leave_group(const Gid& group) override { return inner_->leave_group(group); }
  void abandon() override { inner_->abandon(); }

 private:
  struct Owned {
    Route route;
    std::vector<std::uint8_t> bytes;
    std::uint64_t due_ns = 0;
    std::uint32_t overtakers = 0;
    std::uint64_t delay_ns = 0;  // Once others have overtaken it.
  };
  struct Direction {
    std::deque<Owned> ready;
    std::vector<Owned> held;
    std::vector<Owned> delayed;  // In the order of their times.
  };

  void put(Direction& to, const Datagram& datagram, bool sending);
  void pass(Direction& to, Owned owned, std::uint64_t delay_ns);
  void delay(Direction& to, Owned owned, std::uint64_t delay_ns);
  void go_on(Direction& to, Owned held);
  void let_go(Direction& of);
  void drain();
  bool judges_arrivals();
  void judge_arrivals();
  bool answered(const Owned& arrived);

  std::unique_ptr<Link> inner_;
  std::shared_ptr<SharedFaults> faults_;
  const FindAddressee find_;
  FaultVerdict verdict_;
  Direction sending_;
  Direction receiving_;
  std::size_t judged_ = 0;  // At the front of receiving_: what rules at arrival have let through.
  std::size_t lent_ = 0;    // At the front of receiving_: the caller still looks at them.
  std::uint64_t now_ns_ = 0;
  std::uint64_t start_ns_ = 0;
};

}  // namespace softhca
