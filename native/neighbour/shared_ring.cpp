#include "neighbour/shared_ring.hpp"

namespace softhca {
namespace {

// The reader tells how far it has come when it has used up such a part of the slots or of the body.
constexpr std::uint64_t kTellPart = 8;
// So many records before its turn a line is asked for: its way between two processors may take as
// long as writing several records.
constexpr std::uint64_t kLinesAhead = 4;

// Brings a line here that is to be written: no other processor keeps a copy. What the compiler
// makes of a prefetch for writing on the oldest x86-64 is one for reading, and the copy of the
// reader would have to be called back when the line is written.
void prefetch_to_write(const void* at) {
#if defined(__x86_64__)
  asm volatile("prefetchw (%0)" : : "r"(at));
#else
  __builtin_prefetch(at, 1);
#endif
}

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

std::uint32_t RingWriter::ready_word() const { return place_.lap_bits() | raw(RecordState::READY); }

void RingWriter::hasten(const RingRecord& record) {
  for (std::uint32_t done = 0; done < record.rest_bytes(); done += kCellBytes) {
    let_go(record.rest + done);
  }
}

void RingWriter::publish(const RingRecord& record, RingPlace behind) {
  SharedSlot& slot = *record.slot;
  slot.bytes = record.bytes;
  slot.psns = record.psns;
  slot.header_bytes = static_cast<std::uint16_t>(record.header_bytes);
  slot.piece_count = static_cast<std::uint16_t>(record.piece_count);
  slot.word.store(ready_word(), std::memory_order_release);
  place_ = behind;
  // Records to come find their lines here, instead of fetching them from the reader's processor.
  constexpr std::uint64_t kAhead = kLinesAhead - 1;
  prefetch_to_write(&ring_.slots[(place_.slots + kAhead) % kSlots]);
  prefetch_to_write(ring_.body + (place_.body + kAhead * kCellBytes) % kBodyBytes);
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
