// What was lent to the other adapter: until it is through with it, or it is taken back.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "neighbour/neighbour.hpp"

namespace softhca {
namespace {

// Looks at a peer that fetches what is to be taken back, until it is asked whether it still lives.
constexpr int kLooks = 1000;
// A peer that was stopped in the middle is not waited for: so long, once. Looks say nothing about
// time, for each so many of them the processor is given away.
constexpr std::uint64_t kMostWaitNs = 1'000'000'000;

}  // namespace

bool Neighbour::Lent::is_granted_by(std::uint32_t index) const {
  return key == index || std::ranges::find(more_keys, index) != more_keys.end();
}

// Looks through what the peer is done with, before its place in the ring is written again.
void Neighbour::settle_lent() {
  writer_.look();
  while (!lent_.empty() && lent_.front().end <= writer_.consumed()) {
    Lent& done = lent_.front();
    // To look at the record costs as much as its way here did.
    const bool unread =
        unreadable_found_ != writer_.unreadable() && done.state() == RecordState::UNREADABLE;
    unreadable_found_ += unread ? 1 : 0;
    if (unread && !done.taken_back && !done.is_over) unreadable_.push_back(done.what);
    lent_.pop_front();
  }
}

// True if the peer will not look at it any more, and has not done so.
bool Neighbour::take_back(Lent& lent, Wait& wait) {
  std::uint32_t word = lent.ready;
  const std::uint32_t cancelled =
      lent.ready ^ raw(RecordState::READY) ^ raw(RecordState::CANCELLED);
  if (lent.taken_back || lent.slot->word.compare_exchange_strong(word, cancelled)) {
    return !std::exchange(lent.taken_back, true);
  }
  for (int looks = 1; lent.state() == RecordState::CLAIMED; ++looks) {
    writer_.look();
    if (lent.end <= writer_.consumed() || writer_.is_broken()) break;
    if (looks % kLooks == 0) {
      if (peer_is_gone() || is_over(wait)) writer_.give_up();
      sched_yield();
    }
  }
  return false;
}

bool Neighbour::is_over(Wait& wait) const {
  const std::uint64_t now_ns = met_.clock_ns();
  if (wait.until_ns == 0) wait.until_ns = now_ns + kMostWaitNs;
  return now_ns >= wait.until_ns;
}

void Neighbour::recall(std::uint32_t qpn, LentPayloads which) {
  settle();
  const auto concerns = [&](const LentPayload& one) {
    return one.qpn == qpn && one.is_one_of(which);
  };
  // Whoever has the queue pair next is not to hear of it.
  std::erase_if(unreadable_, concerns);
  Wait wait;
  for (Lent& lent : lent_) {
    if (!concerns(lent.what)) continue;
    static_cast<void>(take_back(lent, wait));
    lent.is_over = true;
  }
}

bool Neighbour::revoke(std::uint32_t key_index) {
  settle();
  Wait wait;
  bool taken_back = false;
  for (Lent& lent : lent_) {
    if (lent.is_granted_by(key_index) && take_back(lent, wait) && !lent.is_over) {
      unreadable_.push_back(lent.what);
      taken_back = true;
    }
  }
  return taken_back;
}

}  // namespace softhca
