// Two connected pairs of one device, which share a completion queue for receives and perhaps a
// shared receive queue: ends 0 and 1 are one pair, 2 and 3 the other.
#pragma once

#include "ends.h"
#include "settle.h"

enum { WALKERS = 4, SHARED = WALKERS, WINDOWS = 2 };

struct world {
  struct end ends[WALKERS];
  // The sends of each end, and the receives of all.
  struct heard queues[WALKERS + 1];
  struct ibv_comp_channel* channel;
  struct ibv_srq* srq;
  // Windows on the memory of end 1, of type 1 and of type 2.
  struct ibv_mr* window_mr;
  struct ibv_mw* mws[WINDOWS];
  uint32_t rkeys[WINDOWS];
  int second_is_bound;
  enum ibv_qp_type type;
  int next_id;
};

// Both ends of a pair from RESET to RTS, with receives.
void connect_walkers(struct world* world, int pair);
void make_walker(struct world* world, int which);
void post_walk_receives(struct world* world, int which, int count);
// Requests of an end to its peer (walk_requests.c).
void post_walk_sends(struct world* world, int which);
void bind_walk_window(struct world* world, int window);
