// Probe g: half a round trip of a cache line between two processors, in seconds.
#include <stdatomic.h>

#include "probe.h"

static _Alignas(128) atomic_long ping;
static _Alignas(128) atomic_long pong;
static long turns;

static void* echo(void* unused) {
  for (long turn = 1; turn <= turns; ++turn) {
    while (atomic_load_explicit(&ping, memory_order_acquire) != turn) {
    }
    atomic_store_explicit(&pong, turn, memory_order_release);
  }
  return unused;
}

static double read_probe(size_t size, long count) {
  (void)size;
  turns = count;
  atomic_store(&ping, 0);
  atomic_store(&pong, 0);
  const pthread_t other = thread_on_second(echo);
  double start = 0;
  for (long turn = 1; turn <= count; ++turn) {
    if (turn == 2) start = seconds_now();  // The first one waited for the thread to begin.
    atomic_store_explicit(&ping, turn, memory_order_release);
    while (atomic_load_explicit(&pong, memory_order_acquire) != turn) {
    }
  }
  const double spent = seconds_now() - start;
  pthread_join(other, NULL);
  return spent / (double)(count - 1) / 2;
}

int main(int count, char** words) {
  take_arguments(count, words);
  stay_on(0);
  answer_lines(read_probe);
  return 0;
}
