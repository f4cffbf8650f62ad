#include "neighbour/shared_ring.hpp"

namespace softhca {
namespace {

// The reader tells how far it has come when it has used up such a part of the slots or of the body.
constexpr std::uint64_t kTellPart = 8;

// Sends a line that was written on its way: out of this processor's own cache, where another would
// have to ask for it, into the one that all share. A processor that does not know how does nothing.
void let_go(const void* at) {
#if defined(__x86_64__)
  asm volatile("cldemote (%0)" : : "r"(at) : "memory");
#else
  static_cast<void>(at);
#endif
}

}  // namespace

void RingWriter::look() {
  const std::uint64_t slots = ring_.consumed_slots.load(std::memory_order_acquire);
  const std::uint64_t body = ring_.consumed_bytes.load(std::memory_order_acquire);
  if (slots < consumed_.slots || slots > place_.slots || body < consumed_.body ||
      body > place_.body) {
    broken_ = true;
    return;
  }
  consumed_ = {slots, body};
}

void RingWriter::hasten(const RingRecord& record) {
  for (std::uint32_t done = 0; done < record.rest_bytes(); done += kCellBytes) {
    let_go(record.rest + done);
  }
}

bool RingWriter::take_sleeper(bool is_ordered) {
  // What was published comes before the look at who sleeps; see the reader's side of it in
  // Neighbourhood::prepare_to_sleep().
  if (is_ordered && ring_.reader_orders.load(std::memory_order_relaxed) != 0) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  return ring_.reader_asleep.load(std::memory_order_relaxed) != 0 &&
         ring_.reader_asleep.exchange(0) != 0;
}

bool RingReader::consume(RingPlace behind) {
  place_ = behind;
  const bool is_much = place_.slots - told_.slots >= kSlots / kTellPart ||
                       place_.body - told_.body >= kBodyBytes / kTellPart;
  return is_much && tell();
}

bool RingReader::claim(const RingRecord& record, const RingPlace& place) {
  std::uint32_t ready = place.lap_bits() | raw(RecordState::READY);
  const std::uint32_t claimed = place.lap_bits() | raw(RecordState::CLAIMED);
  return record.slot->word.compare_exchange_strong(ready, claimed);
}

// The writer adds it up with the records that it hears are consumed.
void RingReader::call_unreadable(const RingRecord& record) {
  record.slot->word.store(place_.lap_bits() | raw(RecordState::UNREADABLE));
  ring_.unreadable.fetch_add(1, std::memory_order_relaxed);
}

bool RingReader::tell() {
  told_ = place_;
  ring_.consumed_bytes.store(place_.body, std::memory_order_release);
  ring_.consumed_slots.store(place_.slots, std::memory_order_release);
  // The writer wishes to be woken before it looks again.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (ring_.writer_waits.load(std::memory_order_relaxed) == 0) return false;
  return ring_.writer_waits.exchange(0) != 0;
}

}  // namespace softhca
