// A completion queue: a bounded ring, and the arming of one notification (IBTA Vol 1, 11.4.2).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "queue/completion.hpp"
#include "queue/completion_outlet.hpp"
#include "queue/ring_slots.hpp"
#include "vocabulary/call_time.hpp"
#include "vocabulary/time.hpp"

namespace softhca {

class CompletionQueue {
 public:
  enum class Arming : std::uint8_t { NONE, SOLICITED, ANY };
  enum class Push : std::uint8_t { ADDED, ADDED_AND_NOTIFY, OVERFLOW, DISCARDED };

  // `timestamps`: whether its completions say when they were.
  CompletionQueue(std::uint32_t handle, std::uint32_t capacity, bool timestamps = true)
      : handle_(handle),
        capacity_(capacity),
        timestamps_(timestamps),
        slots_(capacity),
        ring_(slots_.count()) {}

  std::uint32_t handle() const { return handle_; }
  std::uint32_t capacity() const { return capacity_; }
  bool timestamps() const { return timestamps_; }
  std::uint32_t count() const {
    return static_cast<std::uint32_t>(tail_ - head_) + (outlet_ ? outlet_->count() : 0);
  }

  // OVERFLOW is said once; the queue is then dead, and later pushes are DISCARDED. Changes
  // notify_deadline_ns().
  Push push(const Completion& completion, CallTime& time);
  // How many completions there is room for of which nobody is to be notified; 0: it is not so
  // simple. Where each of them will lie, and that so many are there.
  std::uint64_t quiet_room() const {
    const bool simple = !overflowed_ && !outlet_ && arming_ == Arming::NONE;
    return simple ? capacity_ - (tail_ - head_) : 0;
  }
  Completion& quiet_slot(std::uint64_t ahead = 0) { return ring_[slots_.of(tail_ + ahead)]; }
  void quiet_push(std::uint64_t count = 1) { tail_ += count; }
  std::size_t poll(std::span<Completion> out);

  bool overflowed() const { return overflowed_; }
  // It is dead from now on; false if it was already.
  bool overflow() { return !std::exchange(overflowed_, true); }
  // From now on completions go there; those that wait in another outlet go along. False, and
  // nothing is changed: it cannot take as many. Precondition: none wait here.
  bool lead_to(std::shared_ptr<CompletionOutlet> outlet);

  // Arms for the next completion added from now on. Arming for any upgrades; the other way round
  // changes nothing.
  void arm(bool solicited_only);

  // Moderation: how many completions, and how long after the first of them, until an armed queue
  // notifies. A period of 0 is none.
  void moderate(std::uint32_t count, std::uint64_t period_ns);
  // When a notification that is held back must go; kNever if none is.
  std::uint64_t notify_deadline_ns() const { return notify_deadline_ns_; }
  // Lets go of it; true if there was one.
  bool notify_now();

  // Takes out what belongs to a queue pair that is being destroyed; not from an outlet, which is in
  // the hands of whoever polls it.
  void purge(std::uint32_t qpn);
  // False: `capacity` is below what waits in it. Keeps content and order.
  bool resize(std::uint32_t capacity);

  CompletionOutlet* outlet() const { return outlet_.get(); }

  template <class Visit>
  void for_each(Visit visit) const {
    for (std::uint64_t at = head_; at != tail_; ++at) {
      visit(ring_[slots_.of(at)]);
    }
  }

  std::uint32_t channel = 0;  // Where its events go, in the numbers of whoever made it.
  std::uint32_t users = 0;    // Queue pairs and SRQs that complete here.

 private:
  bool add(const Completion& completion);
  bool fires(const Completion& completion) const;
  bool hold_back(const Completion& completion, CallTime& time);

  std::uint32_t handle_;
  std::uint32_t capacity_;
  const bool timestamps_;
  std::shared_ptr<CompletionOutlet> outlet_;
  RingSlots slots_;
  std::vector<Completion> ring_;  // Empty where there is an outlet.
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  Arming arming_ = Arming::NONE;
  std::uint32_t moderated_count_ = 1;
  std::uint64_t moderated_period_ns_ = 0;
  std::uint32_t held_back_ = 0;  // Completions that an armed queue has not told of.
  std::uint64_t notify_deadline_ns_ = kNever;
  bool overflowed_ = false;
};

}  // namespace softhca
