// A completion queue: a bounded ring, and the arming of one notification (IBTA Vol 1, 11.4.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "queue/completion.hpp"

namespace softhca {

class CompletionQueue {
 public:
  enum class Arming : std::uint8_t { NONE, SOLICITED, ANY };
  enum class Push : std::uint8_t { ADDED, ADDED_AND_NOTIFY, OVERFLOW, DISCARDED };

  CompletionQueue(std::uint32_t handle, std::uint32_t capacity)
      : handle_(handle), ring_(capacity) {}

  std::uint32_t handle() const { return handle_; }
  std::uint32_t capacity() const { return static_cast<std::uint32_t>(ring_.size()); }
  std::uint32_t count() const { return static_cast<std::uint32_t>(tail_ - head_); }

  // OVERFLOW is said once; the queue is then dead, and later pushes are DISCARDED.
  Push push(const Completion& completion);
  std::size_t poll(std::span<Completion> out);

  // Arms for the next completion added from now on. Arming for any upgrades; the other way round
  // changes nothing.
  void arm(bool solicited_only);

  // Takes out what belongs to a queue pair that is being destroyed.
  void purge(std::uint32_t qpn);
  // False: `capacity` is below what waits in it. Keeps content and order.
  bool resize(std::uint32_t capacity);

  std::uint32_t users = 0;  // Queue pairs and SRQs that complete here.

 private:
  std::uint32_t handle_;
  std::vector<Completion> ring_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  Arming arming_ = Arming::NONE;
  bool overflowed_ = false;
};

}  // namespace softhca
