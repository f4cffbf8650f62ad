// Waits until nothing more happens, and says what has.
#pragma once

#include "ends.h"

enum { MOST_HEARD = 128 };

// What has been polled from a completion queue.
struct heard {
  struct ibv_cq* cq;
  int count;
  struct ibv_wc list[MOST_HEARD];
};

// Polls the queues until the ends have nothing more to do: every request that completes has done
// so, and what was under way has arrived.
void settle(struct heard* queues, int queue_count, struct end* const* ends, int end_count);
// The asynchronous events that came until then, by their kinds.
void say_events(void);
// One completion at an end: what a program may rely on, and no more (IBTA Vol 1, 11.4.2.1).
void say_completion(const struct ibv_wc* wc, const struct end* end, const struct end* peer);
