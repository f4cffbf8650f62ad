// Probe r: messages a second through a ring between two processors, each copied in, announced on
// its own, and copied out.
#include <stdatomic.h>

#include "probe.h"

enum { SLOTS = 1024, SLOT_BYTES = 64, TOLD_EVERY = 64 };

static _Alignas(128) unsigned char slots[SLOTS][SLOT_BYTES];
static _Alignas(128) atomic_long written;
static _Alignas(128) atomic_long taken;
static _Alignas(128) unsigned char source[SLOT_BYTES];
static _Alignas(128) unsigned char sink[SLOT_BYTES];
static long messages;

static void* take(void* unused) {
  long seen = 0;
  for (long at = 0; at < messages; ++at) {
    while (seen == at) seen = atomic_load_explicit(&written, memory_order_acquire);
    memcpy(sink, slots[at % SLOTS], SLOT_BYTES);
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
  atomic_store(&written, 0);
  atomic_store(&taken, 0);
  const pthread_t other = thread_on_second(take);
  long free_until = SLOTS;
  double start = 0;
  for (long at = 0; at < count; ++at) {
    while (at == free_until) {
      free_until = SLOTS + atomic_load_explicit(&taken, memory_order_acquire);
    }
    if (at == SLOTS) start = seconds_now();  // The ring was filled before the thread began.
    memcpy(slots[at % SLOTS], source, SLOT_BYTES);
    atomic_store_explicit(&written, at + 1, memory_order_release);
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
