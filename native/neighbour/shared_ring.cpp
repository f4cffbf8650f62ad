#include "neighbour/shared_ring.hpp"

namespace softhca {
namespace {

std::uint64_t cells_of(std::uint32_t bytes) {
  return (sizeof(RecordHead) + bytes + kCellBytes - 1) / kCellBytes * kCellBytes;
}

constexpr auto raw(RecordState state) { return static_cast<std::uint32_t>(state); }

}  // namespace

void RingWriter::look() {
  const std::uint64_t consumed = ring_.consumed.load(std::memory_order_acquire);
  if (consumed < consumed_ || consumed > produced_) {
    broken_ = true;
    return;
  }
  consumed_ = consumed;
}

// With the first word behind it.
bool RingWriter::fits(std::uint64_t bytes) {
  if (produced_ + bytes + kCellBytes - consumed_ <= kRingBytes) return true;
  look();
  return produced_ + bytes + kCellBytes - consumed_ <= kRingBytes;
}

RecordHead* RingWriter::begin(std::uint32_t bytes) {
  const std::uint64_t cells = cells_of(bytes);
  const std::uint64_t to_end = kRingBytes - produced_ % kRingBytes;
  if (broken_ || !fits(cells <= to_end ? cells : to_end + cells)) return nullptr;
  if (cells > to_end) {
    RecordHead* wrap = at(produced_);
    produced_ += to_end;
    at(produced_)->state.store(raw(RecordState::EMPTY), std::memory_order_relaxed);
    wrap->state.store(raw(RecordState::WRAP), std::memory_order_release);
  }
  RecordHead* record = at(produced_);
  record->bytes = bytes;
  return record;
}

void RingWriter::publish(RecordHead& record) {
  produced_ += cells_of(record.bytes);
  at(produced_)->state.store(raw(RecordState::EMPTY), std::memory_order_relaxed);
  record.state.store(raw(RecordState::READY), std::memory_order_release);
}

bool RingWriter::take_sleeper() {
  // What was published comes before the look at who sleeps; see RingReader's side of it in
  // Neighbour::prepare_to_sleep().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return ring_.reader_asleep.load(std::memory_order_relaxed) != 0 &&
         ring_.reader_asleep.exchange(0) != 0;
}

bool RingReader::has_record() const {
  return at(place_)->state.load(std::memory_order_acquire) != raw(RecordState::EMPTY);
}

RecordHead* RingReader::peek(std::uint32_t& bytes) {
  if (broken_) return nullptr;
  std::uint32_t state = at(place_)->state.load(std::memory_order_acquire);
  if (state == raw(RecordState::WRAP)) {
    place_ += kRingBytes - place_ % kRingBytes;
    state = at(place_)->state.load(std::memory_order_acquire);
  }
  if (state == raw(RecordState::EMPTY)) return nullptr;
  RecordHead* record = at(place_);
  bytes = record->bytes;
  const bool known = state == raw(RecordState::READY) || state == raw(RecordState::CANCELLED);
  if (!known || bytes > kMaxRecordBytes || cells_of(bytes) > kRingBytes - place_ % kRingBytes) {
    broken_ = true;
    return nullptr;
  }
  return record;
}

bool RingReader::consume(std::uint32_t bytes) {
  place_ += cells_of(bytes);
  ring_.consumed.store(place_, std::memory_order_release);
  if (ring_.writer_waits.load(std::memory_order_relaxed) == 0) return false;
  return ring_.writer_waits.exchange(0) != 0;
}

}  // namespace softhca
