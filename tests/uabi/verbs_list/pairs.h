// Two connected ends, and what is said of them.
#pragma once

#include "ends.h"
#include "settle.h"

struct pair {
  struct end a, b;
  // The sends and receives of `a`, then those of `b`.
  struct heard queues[4];
};

void make_pair(struct pair* pair, enum ibv_qp_type type, struct ibv_srq* srq, int signal_all);
// What is right for either end; cases spoil it before it is given.
struct ibv_qp_attr attributes_of(const struct pair* pair, const struct end* end);
// Waits until nothing more happens and ends the line with what has.
void tell_pair(struct pair* pair);
