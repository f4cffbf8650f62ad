#include "uabi/mapped_queues.hpp"

#include <algorithm>
#include <array>

#include "uabi/rxe_layout.hpp"

namespace softhca {
namespace {

// An element no shorter than what is always read of it.
std::vector<std::uint8_t> room_for(const MappedRing& ring, std::size_t header) {
  return std::vector<std::uint8_t>(std::max<std::size_t>(ring.element_bytes(), header));
}

}  // namespace

// --- send requests

MappedSendQueue::MappedSendQueue(std::shared_ptr<MappedRing> ring, bool datagram)
    : ring_(std::move(ring)), datagram_(datagram), element_(room_for(*ring_, kSendElementHeader)) {}

std::uint32_t MappedSendQueue::available() {
  std::uint32_t producer = 0;
  if (!ring_->load_producer(producer)) {
    return 0;
  }
  // A program that runs over its own requests cannot have more under way than the ring holds.
  const std::uint32_t taken = (fetched_ - consumer_) & ring_->mask();
  return std::min((producer - fetched_) & ring_->mask(), ring_->mask() - taken);
}

bool MappedSendQueue::next(SendWr& wr) {
  if (!ring_->read(fetched_, element_)) {
    return false;
  }
  ++fetched_;
  decode_send(element_, datagram_, wr);
  return true;
}

void MappedSendQueue::finished() {
  ++consumer_;
  static_cast<void>(ring_->store_consumer(consumer_));
}

// As rxe does it: the program's index stays where it is, and ours joins it.
void MappedSendQueue::reset() {
  std::uint32_t producer = fetched_;
  static_cast<void>(ring_->load_producer(producer));
  fetched_ = consumer_ = producer;
  static_cast<void>(ring_->store_consumer(consumer_));
}

// --- receives

MappedReceiveQueue::MappedReceiveQueue(std::shared_ptr<MappedRing> ring)
    : ring_(std::move(ring)), element_(room_for(*ring_, kReceiveElementHeader)) {}

std::uint32_t MappedReceiveQueue::count() {
  std::uint32_t producer = 0;
  return ring_->load_producer(producer) ? (producer - consumer_) & ring_->mask() : 0;
}

bool MappedReceiveQueue::next(RecvWr& wr, std::uint32_t max_sge) {
  if (count() == 0 || !ring_->read(consumer_, element_)) {
    return false;
  }
  decode_receive(element_, max_sge, wr);
  ++consumer_;
  static_cast<void>(ring_->store_consumer(consumer_));
  return true;
}

void MappedReceiveQueue::reset() {
  std::uint32_t producer = consumer_;
  static_cast<void>(ring_->load_producer(producer));
  consumer_ = producer;
  static_cast<void>(ring_->store_consumer(consumer_));
}

// --- completions

std::uint32_t MappedCompletions::count() const {
  std::uint32_t consumer = 0;
  return ring_->load_consumer(consumer) ? (producer_ - consumer) & ring_->mask() : 0;
}

bool MappedCompletions::put(const Completion& completion) {
  std::array<std::uint8_t, kCompletionBytes> element;
  encode_completion(completion, element.data());
  if (count() == ring_->mask() || !ring_->write(producer_, element)) {
    return false;
  }
  ++producer_;
  return ring_->store_producer(producer_);
}

bool MappedCompletions::continue_from(const CompletionOutlet& before) {
  const auto* old = dynamic_cast<const MappedCompletions*>(&before);
  const std::uint32_t waiting = before.count();
  if (old == nullptr || waiting > ring_->mask()) {
    return false;
  }
  std::array<std::uint8_t, kCompletionBytes> element;
  for (std::uint32_t at = 0; at < waiting; ++at) {
    if (!old->ring_->read(old->producer_ - waiting + at, element) ||
        !ring_->write(producer_ + at, element)) {
      return false;
    }
  }
  producer_ += waiting;
  return ring_->store_producer(producer_);
}

}  // namespace softhca
