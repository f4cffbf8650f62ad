// Completion events of several queues through one channel, while many queue pairs send both ways:
// `many_events COUNT`. A queue is asked to tell of the next completion, then polled until it is
// empty, as ibv_req_notify_cq(3) wants it; then nothing may be missed, and the wait for the next
// event never be in vain. Exits with 0 once every message has arrived.
#include <stdint.h>
#include <unistd.h>

#include "connected.h"

enum { PAIRS = 8, SIDES = 2, DEPTH = 16, BYTES = 2048, PATIENCE_SECONDS = 100 };

struct end {
  struct ibv_qp* qp;
  int posted, sent, received;
};

static struct ibv_pd* pd;
static struct ibv_mr* mr;
static struct ibv_cq* queues[2 * SIDES];  // Of sends and of receives, of each side.
static struct end ends[SIDES][PAIRS];
static char memory[BYTES * 2];
static int wanted;

static void open_all(void) {
  struct ibv_context* context = open_first_device();
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  pd = ibv_alloc_pd(context);
  mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  must(channel != NULL && pd != NULL && mr != NULL, "objects");
  for (int at = 0; at < 2 * SIDES; ++at) {
    queues[at] = ibv_create_cq(context, PAIRS * DEPTH, NULL, channel, 0);
    must(queues[at] != NULL, "ibv_create_cq");
    must(ibv_req_notify_cq(queues[at], 0) == 0, "ibv_req_notify_cq");
  }
  union ibv_gid gid;
  must(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  for (int pair = 0; pair < PAIRS; ++pair) {
    for (int side = 0; side < SIDES; ++side) {
      struct ibv_cq** cqs = &queues[2 * side];
      ends[side][pair].qp = make_rc_qp(pd, cqs[0], cqs[1], DEPTH);
    }
    for (int side = 0; side < SIDES; ++side) {
      connect_rc_qp(ends[side][pair].qp, ends[1 - side][pair].qp->qp_num, &gid);
    }
  }
}

static void post_receive(int side, int pair) {
  struct ibv_sge sge = {(uintptr_t)memory + BYTES, BYTES, mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad = NULL;
  wr.wr_id = (uint64_t)pair;
  must(ibv_post_recv(ends[side][pair].qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void post_send(int side, int pair) {
  struct end* end = &ends[side][pair];
  if (end->posted == wanted) return;
  ++end->posted;
  struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad = NULL;
  wr.wr_id = (uint64_t)pair;
  wr.send_flags = IBV_SEND_SIGNALED;
  must(ibv_post_send(end->qp, &wr, &bad) == 0, "ibv_post_send");
}

static int completed(int queue) {
  struct ibv_wc wc;
  int taken = 0, got;
  for (; (got = ibv_poll_cq(queues[queue], 1, &wc)) != 0; ++taken) {
    must(got == 1 && wc.status == IBV_WC_SUCCESS, "completion");
    const int side = queue / 2, pair = (int)wc.wr_id;
    if (queue % 2 == 0) {
      ++ends[side][pair].sent;
      post_send(side, pair);
    } else {
      ++ends[side][pair].received;
      post_receive(side, pair);
    }
  }
  return taken;
}

int main(int words, char** word) {
  must(words == 2, "usage: many_events COUNT");
  wanted = atoi(word[1]);
  alarm(PATIENCE_SECONDS);
  open_all();
  for (int turn = 0; turn < DEPTH; ++turn) {
    for (int pair = 0; pair < PAIRS; ++pair) {
      for (int side = 0; side < SIDES; ++side) post_receive(side, pair);
    }
  }
  for (int turn = 0; turn < DEPTH; ++turn) {
    for (int pair = 0; pair < PAIRS; ++pair) {
      for (int side = 0; side < SIDES; ++side) post_send(side, pair);
    }
  }
  long done = 0, events = 0;
  const long all = 2L * SIDES * PAIRS * wanted;
  while (done < all) {
    struct ibv_cq* told = NULL;
    void* nothing = NULL;
    must(ibv_get_cq_event(queues[0]->channel, &told, &nothing) == 0, "ibv_get_cq_event");
    ++events;
    ibv_ack_cq_events(told, 1);
    must(ibv_req_notify_cq(told, 0) == 0, "ibv_req_notify_cq");
    int queue = 0;
    while (queues[queue] != told) ++queue;
    done += completed(queue);
  }
  for (int side = 0; side < SIDES; ++side) {
    for (int pair = 0; pair < PAIRS; ++pair) {
      must(ends[side][pair].sent == wanted && ends[side][pair].received == wanted, "counts");
    }
  }
  printf("%ld completions, %ld events\n", done, events);
  return 0;
}
