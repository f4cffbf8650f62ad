#include "link/fault_link.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace softhca {

bool FaultStage::happens(double probability) {
  // 53 random bits: every double of [0, 1) that the comparison can tell apart, on any machine.
  const double drawn = static_cast<double>(random_.next() >> 11) * 0x1p-53;
  return drawn < probability;
}

FaultStage::Owned FaultStage::copy_of(const Datagram& datagram) {
  Owned owned;
  if (!spare_.empty()) {
    owned.bytes = std::move(spare_.back());
    spare_.pop_back();
  }
  owned.route = datagram.route;
  owned.bytes.assign(datagram.bytes.begin(), datagram.bytes.end());
  return owned;
}

void FaultStage::emit(Owned datagram) {
  ready_.push_back(std::move(datagram));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < held_.size(); ++i) {
    if (--held_[i].overtakers == 0) {
      ready_.push_back(std::move(held_[i]));
    } else {
      if (kept != i) held_[kept] = std::move(held_[i]);
      ++kept;
    }
  }
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(kept), held_.end());
}

void FaultStage::put(const Datagram& datagram) {
  ++counters_.passed;
  // All are drawn each time, so that one rate does not change what another one does.
  const bool drop = happens(rates_.drop);
  const bool duplicate = happens(rates_.duplicate);
  const bool reorder = happens(rates_.reorder);
  const bool corrupt = happens(rates_.corrupt);
  const std::uint64_t overtakers = 1 + random_.below(4);
  const std::uint64_t bit = random_.below(std::max<std::size_t>(1, datagram.bytes.size() * 8));
  if (drop) {
    ++counters_.dropped;
    return;
  }
  if (duplicate) {
    ++counters_.duplicated;
    emit(copy_of(datagram));
  }
  Owned owned = copy_of(datagram);
  if (corrupt && !owned.bytes.empty()) {
    ++counters_.corrupted;
    owned.bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
  }
  if (reorder) {
    ++counters_.reordered;
    owned.overtakers = overtakers;
    held_.push_back(std::move(owned));
    return;
  }
  emit(std::move(owned));
}

void FaultStage::release() {
  for (Owned& datagram : held_) ready_.push_back(std::move(datagram));
  held_.clear();
}

void FaultStage::pop(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (spare_.size() < kLinkBatch) spare_.push_back(std::move(ready_.front().bytes));
    ready_.pop_front();
  }
}

FaultLink::FaultLink(std::unique_ptr<Link> inner, const FaultSettings& settings)
    : inner_(std::move(inner)),
      sending_(settings.send, settings.seed),
      receiving_(settings.receive, ~settings.seed) {}

void FaultLink::drain_sending() {
  std::array<Datagram, kLinkBatch> batch;
  while (!sending_.empty()) {
    const std::size_t count = std::min(batch.size(), sending_.ready_count());
    for (std::size_t i = 0; i < count; ++i) {
      batch[i] = {sending_.ready(i).route, sending_.ready(i).bytes};
    }
    const std::size_t sent = inner_->send(std::span(batch).first(count));
    sending_.pop(sent);
    if (sent < count) return;
  }
}

std::size_t FaultLink::send(std::span<const Datagram> datagrams) {
  // A datagram's fate is drawn once: what the inner link refuses waits here, and more is refused
  // until it is gone.
  drain_sending();
  if (!sending_.empty()) return 0;
  for (const Datagram& datagram : datagrams) sending_.put(datagram);
  drain_sending();
  return datagrams.size();
}

std::size_t FaultLink::receive(std::span<Datagram> datagrams) {
  receiving_.pop(std::exchange(lent_, 0));
  if (receiving_.ready_count() < datagrams.size()) {
    std::array<Datagram, kLinkBatch> batch;
    const std::size_t arrived = inner_->receive(batch);
    for (std::size_t i = 0; i < arrived; ++i) receiving_.put(batch[i]);
  }
  lent_ = std::min(receiving_.ready_count(), datagrams.size());
  for (std::size_t i = 0; i < lent_; ++i) {
    datagrams[i] = {receiving_.ready(i).route, receiving_.ready(i).bytes};
  }
  return lent_;
}

void FaultLink::release() {
  inner_->release();
  sending_.release();
  receiving_.release();
  drain_sending();
}

}  // namespace softhca
