// Says what queue pairs are like.
#pragma once

#include <infiniband/verbs.h>

// IBV_QPS_RESET if it cannot be asked.
int state_of(struct ibv_qp* qp);
// State and attributes; only those that were given, since nothing says what others are.
void say_attributes(struct ibv_qp* qp, int given);
