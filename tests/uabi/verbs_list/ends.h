// The ends of connections: a queue pair with what it needs.
#pragma once

#include "device.h"

struct end {
  const struct device* device;
  struct ibv_cq *send_cq, *recv_cq;
  // NULL once it is destroyed; the type stays.
  struct ibv_qp* qp;
  enum ibv_qp_type type;
  // All of the memory: with every right, with none, and of another PD.
  struct ibv_mr *mr, *poor, *foreign;
  uint8_t* memory;
  struct ibv_ah* ah;
  // The last request that completes in any case, or NOTHING.
  int64_t awaited;
  int next_id;
};

enum { NOTHING = -1 };

// Everything but the queue pair, and its queues if it has them already.
void furnish_end(struct end* end, const struct device* device);
void make_queue_pair(struct end* end, enum ibv_qp_type type, struct ibv_srq* srq, int signal_all);
// Takes a queue pair from RESET to a state, by all before it, and says what refuses.
void bring_to(struct end* end, struct ibv_qp_attr attr, int state);
void move_to(struct end* end, int state);
// Posts requests and says what came of it; they complete if they are signaled.
void post_requests(struct end* end, struct ibv_send_wr* wrs);
// A word for all bytes of its memory.
uint32_t memory_of(const struct end* end);
const char* opcode_name(enum ibv_wr_opcode opcode);
