// Walks: what a program may do one after the other, with what it has.
#include "walk.h"

#include <fcntl.h>

#include "cases.h"
#include "choices.h"
#include "line.h"
#include "states.h"

enum { STEPS = 12 };

void make_walker(struct world* world, int which) {
  make_queue_pair(&world->ends[which], world->type, which % 2 != 0 ? world->srq : NULL, which / 2);
}

void connect_walkers(struct world* world, int pair) {
  for (int side = 0; side < 2; ++side) {
    struct end* end = &world->ends[2 * pair + side];
    struct ibv_qp_attr attr = right_attributes(world->ends[2 * pair + 1 - side].qp->qp_num);
    attr.rnr_retry = attr.retry_cnt = 3;
    move_to(end, IBV_QPS_RESET);
    bring_to(end, attr, IBV_QPS_RTS);
  }
  for (int side = 0; side < 2; ++side) post_walk_receives(world, 2 * pair + side, 9);
}

static void make_world(struct world* world) {
  world->next_id = 1;
  world->channel = ibv_create_comp_channel(near_device.context);
  fcntl(world->channel->fd, F_SETFL, O_NONBLOCK);
  for (int index = 0; index < WALKERS + 1; ++index) {
    world->queues[index].cq = ibv_create_cq(near_device.context, 127, NULL, world->channel, 0);
  }
  struct ibv_ah_attr path = right_attributes(0).ah_attr;
  for (int which = 0; which < WALKERS; ++which) {
    struct end* end = &world->ends[which];
    end->send_cq = world->queues[which].cq;
    end->recv_cq = world->queues[SHARED].cq;
    furnish_end(end, &near_device);
    end->ah = ibv_create_ah(near_device.pd, &path);
    make_walker(world, which);
  }
  const int flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  world->window_mr = ibv_reg_mr(near_device.pd, world->ends[1].memory, ROOM, flags);
  for (int window = 0; window < WINDOWS; ++window) {
    const enum ibv_mw_type type = window == 0 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
    world->mws[window] = ibv_alloc_mw(near_device.pd, type);
    world->rkeys[window] = world->mws[window]->rkey;
  }
}

static int rings_of(struct world* world) {
  struct ibv_cq* rung;
  void* its;
  int rings = 0;
  for (; ibv_get_cq_event(world->channel, &rung, &its) == 0; ++rings) ibv_ack_cq_events(rung, 1);
  return rings;
}

// Those of one end at a queue: those of several at the shared one overtake each other.
static void say_heard(struct world* world, const struct heard* queue, int which, uint32_t qpn) {
  struct end *end = &world->ends[which], *peer = &world->ends[which ^ 1];
  for (int at = 0; at < queue->count; ++at) {
    if (queue->list[at].qp_num == qpn) say_completion(&queue->list[at], end, peer);
  }
}

static void tell_world(struct world* world, const uint32_t* qpns) {
  struct end* ends[WALKERS];
  for (int which = 0; which < WALKERS; ++which) ends[which] = &world->ends[which];
  settle(world->queues, WALKERS + 1, ends, WALKERS);
  for (int which = 0; which < WALKERS; ++which) {
    struct end* end = &world->ends[which];
    // One that was destroyed in this step leaves nothing behind.
    const uint32_t qpn = end->qp != NULL ? end->qp->qp_num : qpns[which];
    say(" %d:", which);
    say_heard(world, &world->queues[which], which, qpn);
    say(" receives");
    say_heard(world, &world->queues[SHARED], which, qpn);
    if (end->qp != NULL) say(" state %d", state_of(end->qp));
    say(" memory %08x", memory_of(end));
  }
  for (int index = 0; index < WALKERS + 1; ++index) world->queues[index].count = 0;
  say(" rings %d", rings_of(world));
  say_events();
  tell();
}

static void renew(struct world* world, int pair) {
  ask(" again");
  for (int which = 2 * pair; which < 2 * pair + 2; ++which) {
    if (world->ends[which].qp == NULL) make_walker(world, which);
  }
  for (int which = 2 * pair; which < 2 * pair + 2; ++which) {
    move_to(&world->ends[which], IBV_QPS_RESET);
  }
  connect_walkers(world, pair);
}

static void change_state(struct end* end) {
  const int state = ONE_OF(IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_SQD, IBV_QPS_RTS);
  ask(" to %d", state);
  struct ibv_qp_attr attr = {.qp_state = state, .en_sqd_async_notify = 1};
  const int notify = state == IBV_QPS_SQD ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0;
  const int status = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | notify);
  say_errno(status);
  if (status == 0 && state == IBV_QPS_RESET) end->awaited = NOTHING;
}

static void ask_of_shared_queues(struct world* world, int what) {
  struct ibv_cq* cq = world->queues[SHARED].cq;
  struct ibv_srq_attr attr = {.srq_limit = 1 + below(6)};
  const int solicited = below(2), size = ONE_OF(1, 31, 63, 127);
  if (what == 0) {
    ask(" notify %d", solicited);
    say_errno(ibv_req_notify_cq(cq, solicited));
  } else if (what == 1) {
    ask(" resize %d", size);
    say_errno(ibv_resize_cq(cq, size));
  } else {
    ask(" limit %d", attr.srq_limit);
    if (world->srq != NULL) say_errno(ibv_modify_srq(world->srq, &attr, IBV_SRQ_LIMIT));
  }
}

static void destroy_end(struct end* end) {
  ask(" destroy");
  const int status = ibv_destroy_qp(end->qp);
  say_errno(status);
  if (status == 0) end->qp = NULL;
}

static void reregister(struct end* end) {
  const int rights = ONE_OF(0x1f, 0x1f, 1, 3, 5, 0);
  ask(" rereg %x", (unsigned)rights);
  say("%d", ibv_rereg_mr(end->mr, IBV_REREG_MR_CHANGE_ACCESS, near_device.pd, NULL, 0, rights));
}

static void step(struct world* world) {
  const int which = below(WALKERS);
  struct end* end = &world->ends[which];
  const int what = below(24);
  ask("end %d:", which);
  if (end->qp == NULL || world->ends[which ^ 1].qp == NULL || what == 14 || what == 15) {
    renew(world, which / 2);
  } else if (what < 9) {
    post_walk_sends(world, which);
  } else if (what < 13) {
    const int count = ONE_OF(1, 2, 3, 8);
    ask(" receives %d", count);
    post_walk_receives(world, which, count);
  } else if (what == 13) {
    change_state(end);
  } else if (what < 19) {
    ask_of_shared_queues(world, what - 16);
  } else if (what == 19) {
    destroy_end(end);
  } else if (what == 20) {
    reregister(end);
  } else {
    bind_walk_window(world, below(WINDOWS));
  }
}

void walking(void) {
  // Too large for the stack of every system.
  static struct world world;
  world.type = ONE_OF(IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD);
  struct ibv_srq_init_attr wishes = {.attr = {.max_wr = 15, .max_sge = 4}};
  if (once_in(2)) world.srq = ibv_create_srq(near_device.pd, &wishes);
  make_world(&world);
  connect_walkers(&world, 0);
  connect_walkers(&world, 1);
  ask("walk %s srq %d", type_name(world.type), world.srq != NULL);
  tell();
  for (int turn = 0; turn < STEPS; ++turn) {
    uint32_t qpns[WALKERS];
    for (int which = 0; which < WALKERS; ++which) {
      qpns[which] = world.ends[which].qp != NULL ? world.ends[which].qp->qp_num : 0;
    }
    step(&world);
    tell_world(&world, qpns);
  }
}
