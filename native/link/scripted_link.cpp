#include "link/scripted_link.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "wire/packet.hpp"

namespace softhca {
namespace {

// While it lives, this thread judges by the rules, be it within another judgement.
class Judgement {
 public:
  explicit Judgement(SharedFaults& faults)
      : lock_(faults.mutex),
        faults_(faults),
        before_(faults.judge.exchange(std::this_thread::get_id())) {}
  ~Judgement() { faults_.judge.store(before_); }
  Judgement(const Judgement&) = delete;
  Judgement& operator=(const Judgement&) = delete;

 private:
  const std::lock_guard<std::recursive_mutex> lock_;
  SharedFaults& faults_;
  const std::thread::id before_;
};

}  // namespace

void ScriptedLink::pass(Direction& to, Owned owned, std::uint64_t delay_ns) {
  if (delay_ns != 0) {
    delay(to, std::move(owned), delay_ns);
    return;
  }
  to.ready.push_back(std::move(owned));
  for (std::size_t i = 0; i < to.held.size();) {
    if (--to.held[i].overtakers != 0) {
      ++i;
      continue;
    }
    go_on(to, std::move(to.held[i]));
    to.held.erase(to.held.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void ScriptedLink::delay(Direction& to, Owned owned, std::uint64_t delay_ns) {
  owned.due_ns = now_ns_ + delay_ns;
  const auto at = std::ranges::upper_bound(to.delayed, owned.due_ns, {}, &Owned::due_ns);
  to.delayed.insert(at, std::move(owned));
}

void ScriptedLink::go_on(Direction& to, Owned held) {
  if (const std::uint64_t delay_ns = held.delay_ns; delay_ns != 0) {
    delay(to, std::move(held), delay_ns);
  } else {
    to.ready.push_back(std::move(held));
  }
}

void ScriptedLink::put(Direction& to, const Datagram& datagram, bool sending) {
  Owned owned{datagram.route, {datagram.bytes.begin(), datagram.bytes.end()}};
  verdict_.clear();
  ByteSpan bytes = owned.bytes;
  {
    const Judgement judgement(*faults_);
    faults_->rules.judge(owned.route, bytes, now_ns_ - start_ns_, -1, sending, verdict_,
                         ~kAtArrival);
  }
  owned.bytes.resize(bytes.size());
  if (verdict_.marked) owned.route.traffic_class |= kCongestionExperienced;
  for (const std::uint64_t delay_ns : verdict_.copies) pass(to, owned, delay_ns);
  for (ScriptedDatagram& one : verdict_.scripted) {
    pass(to, Owned{owned.route, std::move(one.bytes)}, one.delay_ns);
  }
  if (verdict_.dropped) return;
  if (verdict_.overtakers != 0) {
    owned.overtakers = verdict_.overtakers;
    owned.delay_ns = verdict_.delay_ns;
    to.held.push_back(std::move(owned));
    return;
  }
  pass(to, std::move(owned), verdict_.delay_ns);
}

void ScriptedLink::drain() {
  std::array<Datagram, kLinkBatch> batch;
  while (!sending_.ready.empty()) {
    const std::size_t count = std::min(batch.size(), sending_.ready.size());
    for (std::size_t i = 0; i < count; ++i) {
      batch[i] = {sending_.ready[i].route, sending_.ready[i].bytes};
    }
    const std::size_t sent = inner_->send(std::span(batch).first(count));
    sending_.ready.erase(sending_.ready.begin(),
                         sending_.ready.begin() + static_cast<std::ptrdiff_t>(sent));
    if (sent < count) return;
  }
}

std::size_t ScriptedLink::send(std::span<const Datagram> datagrams) {
  // A datagram is judged once: what the inner link refuses waits here.
  drain();
  if (!sending_.ready.empty()) return 0;
  for (const Datagram& datagram : datagrams) put(sending_, datagram, true);
  drain();
  return datagrams.size();
}

std::size_t ScriptedLink::receive(std::span<Datagram> datagrams) {
  auto& ready = receiving_.ready;
  judged_ -= std::min(judged_, lent_);
  ready.erase(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(std::exchange(lent_, 0)));
  if (ready.size() < datagrams.size()) {
    std::array<Datagram, kLinkBatch> batch;
    const std::size_t arrived = inner_->receive(batch);
    for (std::size_t i = 0; i < arrived; ++i) put(receiving_, batch[i], false);
  }
  lent_ = std::min(ready.size(), datagrams.size());
  if (judges_arrivals()) {
    judge_arrivals();
    lent_ = std::min(judged_, datagrams.size());
  }
  for (std::size_t i = 0; i < lent_; ++i) datagrams[i] = {ready[i].route, ready[i].bytes};
  return lent_;
}

bool ScriptedLink::judges_arrivals() {
  const std::lock_guard lock(faults_->mutex);
  return faults_->rules.has(kAtArrival);
}

// One packet at a time: which request is due is known when the adapter has taken those before it.
void ScriptedLink::judge_arrivals() {
  auto& ready = receiving_.ready;
  if (judged_ > 0) return;
  while (!ready.empty() && answered(ready.front())) ready.pop_front();
  judged_ = ready.empty() ? 0 : 1;
}

bool ScriptedLink::answered(const Owned& arrived) {
  const ByteView packet = arrived.bytes;
  Addressee addressee;
  if (packet.size() < kBthBytes + kIcrcBytes || !find_(load_be24(&packet[5]), addressee)) {
    return false;
  }
  FaultActions asked = action_bit(FaultAction::CNP);
  if (can_be_refused(packet, addressee)) asked |= kInPlace;
  verdict_.clear();
  std::vector<std::uint8_t> copy = arrived.bytes;
  ByteSpan bytes = copy;
  {
    const Judgement judgement(*faults_);
    faults_->rules.judge(arrived.route, bytes, now_ns_ - start_ns_, -1, false, verdict_, asked);
  }
  const auto send_back = [this](PacketInPlace made) {
    sending_.ready.push_back({made.route, std::move(made.bytes)});
  };
  if (verdict_.cnp) send_back(notification_of(arrived.route, packet, addressee));
  if (verdict_.answer < 0) return false;
  const auto syndrome = static_cast<std::uint8_t>(verdict_.answer);
  send_back(refusal_of(arrived.route, packet, syndrome, addressee));
  return true;
}

void ScriptedLink::let_go(Direction& of) {
  std::size_t due = 0;
  while (due < of.delayed.size() && of.delayed[due].due_ns <= now_ns_) ++due;
  for (std::size_t i = 0; i < due; ++i) of.ready.push_back(std::move(of.delayed[i]));
  of.delayed.erase(of.delayed.begin(), of.delayed.begin() + static_cast<std::ptrdiff_t>(due));
}

std::uint64_t ScriptedLink::pass_time(std::uint64_t now_ns) {
  if (start_ns_ == 0) start_ns_ = now_ns;
  now_ns_ = std::max(now_ns_, now_ns);
  let_go(sending_);
  let_go(receiving_);
  std::uint64_t next_ns = inner_->pass_time(now_ns);
  // Behind what is lent there may be more: at once.
  if (receiving_.ready.size() > lent_ || !sending_.ready.empty()) next_ns = now_ns;
  for (const Direction* direction : {&sending_, &receiving_}) {
    if (!direction->delayed.empty()) next_ns = std::min(next_ns, direction->delayed[0].due_ns);
  }
  return next_ns;
}

void ScriptedLink::release() {
  inner_->release();
  for (Direction* direction : {&sending_, &receiving_}) {
    for (Owned& owned : direction->held) go_on(*direction, std::move(owned));
    direction->held.clear();
  }
  drain();
}

}  // namespace softhca
