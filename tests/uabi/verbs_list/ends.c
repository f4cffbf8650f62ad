// Makes ends, moves them through their states, posts to them.
#include "ends.h"

#include "line.h"
#include "states.h"

void furnish_end(struct end* end, const struct device* device) {
  const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  end->device = device;
  if (end->send_cq == NULL) end->send_cq = ibv_create_cq(device->context, 63, NULL, NULL, 0);
  if (end->recv_cq == NULL) end->recv_cq = ibv_create_cq(device->context, 63, NULL, NULL, 0);
  end->memory = map_room();
  end->mr = ibv_reg_mr(device->pd, end->memory, ROOM, all);
  end->poor = ibv_reg_mr(device->pd, end->memory, ROOM, 0);
  end->foreign = ibv_reg_mr(device->other_pd, end->memory, ROOM, all);
  end->awaited = NOTHING;
}

void make_queue_pair(struct end* end, enum ibv_qp_type type, struct ibv_srq* srq, int signal_all) {
  struct ibv_qp_init_attr init = {.send_cq = end->send_cq, .recv_cq = end->recv_cq, .srq = srq};
  init.qp_type = type;
  init.sq_sig_all = signal_all;
  // One below a power of two: rxe's queues have as many places as they are asked for then.
  init.cap = (struct ibv_qp_cap){15, 15, 4, 4, 64};
  end->type = type;
  end->qp = ibv_create_qp(end->device->pd, &init);
  end->awaited = NOTHING;
}

void move_to(struct end* end, int state) {
  struct ibv_qp_attr attr = {.qp_state = state};
  ibv_modify_qp(end->qp, &attr, IBV_QP_STATE);
  if (state == IBV_QPS_RESET) end->awaited = NOTHING;
}

void bring_to(struct end* end, struct ibv_qp_attr attr, int state) {
  const int highest = state > IBV_QPS_SQD ? IBV_QPS_RTS : state;
  for (int next = IBV_QPS_INIT; next <= highest; ++next) {
    attr.qp_state = next;
    // Linux's rxe tells of drained queues whether or not that is wished.
    attr.en_sqd_async_notify = 1;
    const int notify = next == IBV_QPS_SQD ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0;
    const int status = ibv_modify_qp(end->qp, &attr, right_mask(end->type, next) | notify);
    if (status == 0) continue;
    say("to %d ", next);
    say_errno(status);
  }
  if (state == IBV_QPS_ERR) move_to(end, IBV_QPS_ERR);
}

void post_requests(struct end* end, struct ibv_send_wr* wrs) {
  struct ibv_send_wr* bad = NULL;
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  const int all_signaled = ibv_query_qp(end->qp, &attr, IBV_QP_CAP, &init) == 0 && init.sq_sig_all;
  const int status = ibv_post_send(end->qp, wrs, &bad);
  int done = 0;
  for (struct ibv_send_wr* wr = wrs; wr != NULL && (status == 0 || wr != bad); wr = wr->next) {
    // Where the doorbell is refused, nobody says which request it was.
    if (status != 0 && bad == NULL) break;
    if (all_signaled || wr->send_flags & IBV_SEND_SIGNALED) end->awaited = (int64_t)wr->wr_id;
    ++done;
  }
  say_errno(status);
  say(" posted %d", done);
}

uint32_t memory_of(const struct end* end) {
  uint32_t hash = 2166136261u;
  for (int at = 0; at < ROOM; ++at) {
    // What stands before a datagram's payload: systems write different headers there.
    if (end->type == IBV_QPT_UD && at % SLOT < 40) continue;
    hash = (hash ^ end->memory[at]) * 16777619u;
  }
  return hash;
}

const char* opcode_name(enum ibv_wr_opcode opcode) {
  static const char* const kNames[] = {"WRITE", "WRITE_IMM", "SEND",      "SEND_IMM", "READ",
                                       "CAS",   "FAA",       "LOCAL_INV", "BIND",     "SEND_INV"};
  return opcode < sizeof kNames / sizeof *kNames ? kNames[opcode] : "?";
}
