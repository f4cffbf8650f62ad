// Probe r: messages a second through a ring between two processors. Each is 64 bytes beside a
// sequence number that announces it, and the announcement is out before the next message begins
// (sequentially consistent): what a message costs on its own. A ring that lets the processor gather
// announcements, as lists of messages may, is several times faster.
#include <stdatomic.h>

#include "probe.h"

enum { SLOTS = 256, MESSAGE_BYTES = 64, TOLD_EVERY = 32 };

struct slot {
  _Alignas(128) atomic_long sequence;
  unsigned char message[MESSAGE_BYTES];
};

static struct slot slots[SLOTS];
static _Alignas(128) atomic_long taken;
static _Alignas(128) unsigned char source[MESSAGE_BYTES];
static _Alignas(128) unsigned char sink[MESSAGE_BYTES];
static long messages;

static void* take(void* unused) {
  for (long at = 0; at < messages; ++at) {
    struct slot* const slot = &slots[at % SLOTS];
    while (atomic_load_explicit(&slot->sequence, memory_order_acquire) != at + 1) {
    }
    memcpy(sink, slot->message, MESSAGE_BYTES);
    __asm__ volatile("" ::: "memory");
    if (at % TOLD_EVERY == TOLD_EVERY - 1) {
      atomic_store_explicit(&taken, at + 1, memory_order_release);
    }
  }
  atomic_store_explicit(&taken, messages, memory_order_release);
  return unused;
}

static double read_probe(size_t size, long count) {
  (void)size;
  messages = count;
  for (int slot = 0; slot < SLOTS; ++slot) atomic_store(&slots[slot].sequence, 0);
  atomic_store(&taken, 0);
  const pthread_t other = thread_on_second(take);
  long free_until = SLOTS;
  double start = 0;
  for (long at = 0; at < count; ++at) {
    while (at == free_until) {
      free_until = SLOTS + atomic_load_explicit(&taken, memory_order_acquire);
    }
    if (at == SLOTS) start = seconds_now();  // The ring was filled before the thread began.
    struct slot* const slot = &slots[at % SLOTS];
    memcpy(slot->message, source, MESSAGE_BYTES);
    atomic_store(&slot->sequence, at + 1);
  }
  while (atomic_load_explicit(&taken, memory_order_acquire) != count) {
  }
  const double spent = seconds_now() - start;
  pthread_join(other, NULL);
  return (double)(count - SLOTS) / spent;
}

int main(int count, char** words) {
  take_arguments(count, words);
  stay_on(0);
  answer_lines(read_probe);
  return 0;
}
