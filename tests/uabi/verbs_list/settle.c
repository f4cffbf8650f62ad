// Time says nothing about a system that is slow: what was sent has arrived when what was sent
// behind it has been answered. So a pair of queue pairs beside those of the case, on the same
// devices, sends messages of its own; when several of them have been answered and nothing else has
// come, it is over.
#include "settle.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "line.h"
#include "states.h"

enum { MARKERS = 6, PAUSE_MICROSECONDS = 1000, LONGEST_MILLISECONDS = 10000, EVENT_KINDS = 32 };

static struct end markers[2];
static int event_counts[EVENT_KINDS];

static void make_markers(void) {
  const struct device* devices[] = {&near_device, &far_device};
  for (int side = 0; side < 2; ++side) {
    furnish_end(&markers[side], devices[side]);
    make_queue_pair(&markers[side], IBV_QPT_RC, NULL, 1);
  }
  for (int side = 0; side < 2; ++side) {
    struct ibv_qp_attr attr = right_attributes(markers[1 - side].qp->qp_num);
    attr.ah_attr.grh.dgid = devices[1 - side]->gid;
    attr.retry_cnt = attr.rnr_retry = 7;
    bring_to(&markers[side], attr, IBV_QPS_RTS);
  }
}

// Sends a message, waits until it is acknowledged.
static void pass_marker(void) {
  if (markers[0].qp == NULL) make_markers();
  struct end *end = &markers[0], *peer = &markers[1];
  struct ibv_sge sge = {(uintptr_t)end->memory, 8, end->mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
  wr.wr.rdma.remote_addr = (uintptr_t)peer->memory;
  wr.wr.rdma.rkey = peer->mr->rkey;
  struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
  int got = ibv_post_send(end->qp, &wr, &bad) == 0 ? 0 : -1;
  while (got == 0) {
    usleep(PAUSE_MICROSECONDS / 10);
    got = ibv_poll_cq(end->send_cq, 1, &wc);
  }
  const int arrived = got == 1 && wc.status == IBV_WC_SUCCESS;
  if (arrived && state_of(peer->qp) == IBV_QPS_RTS) return;
  fputs("verbs_list: a marker is lost\n", stderr);
  exit(1);
}

static int collect(struct heard* queue) {
  int got = 0;
  do {
    queue->count += got;
    if (queue->count == MOST_HEARD) return queue->count;
    got = ibv_poll_cq(queue->cq, 1, &queue->list[queue->count]);
  } while (got > 0);
  return queue->count;
}

static int collect_events(struct ibv_context* context) {
  struct ibv_async_event event;
  int count = 0;
  while (ibv_get_async_event(context, &event) == 0) {
    ++event_counts[event.event_type % EVENT_KINDS];
    ibv_ack_async_event(&event);
    ++count;
  }
  return count;
}

// Whether a completion must still come. In SQD and below RTS, requests wait for the state to
// change.
static int owes(struct end* end, const struct heard* queues, int queue_count) {
  if (end->qp == NULL || end->awaited == NOTHING) return 0;
  for (int index = 0; index < queue_count; ++index) {
    for (int at = 0; at < queues[index].count; ++at) {
      const struct ibv_wc* wc = &queues[index].list[at];
      if (wc->qp_num != end->qp->qp_num || (int64_t)wc->wr_id != end->awaited) continue;
      end->awaited = NOTHING;
      return 0;
    }
  }
  const int state = state_of(end->qp);
  return state == IBV_QPS_RTS || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
}

void settle(struct heard* queues, int queue_count, struct end* const* ends, int end_count) {
  int before = 0, quiet = 0;
  int turn = 0;
  for (; quiet < MARKERS && turn < LONGEST_MILLISECONDS; ++turn) {
    int heard = collect_events(near_device.context), owed = 0;
    if (far_device.context != near_device.context) heard += collect_events(far_device.context);
    int sum = 0;
    for (int index = 0; index < queue_count; ++index) sum += collect(&queues[index]);
    for (int index = 0; index < end_count; ++index) owed += owes(ends[index], queues, queue_count);
    quiet = owed || heard || sum != before ? 0 : quiet + 1;
    before = sum;
    if (!owed) pass_marker();
    usleep(PAUSE_MICROSECONDS);
  }
  if (turn < LONGEST_MILLISECONDS) return;
  // A system that never completes what it owes shows that by what is missing, and only once.
  for (int index = 0; index < end_count; ++index) ends[index]->awaited = NOTHING;
}

void say_events(void) {
  for (int kind = 0; kind < EVENT_KINDS; ++kind) {
    if (event_counts[kind] != 0) say(" event %d x%d", kind, event_counts[kind]);
    event_counts[kind] = 0;
  }
}

void say_completion(const struct ibv_wc* wc, const struct end* end, const struct end* peer) {
  say(" [%lu %s", wc->wr_id, ibv_wc_status_str(wc->status));
  if (end->qp != NULL && wc->qp_num != end->qp->qp_num) say(" strange qp");
  if (wc->status == IBV_WC_SUCCESS) {
    const int receives = (wc->opcode & IBV_WC_RECV) != 0;
    const int fetches = wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_COMP_SWAP ||
                        wc->opcode == IBV_WC_FETCH_ADD;
    const int is_datagram = end->type == IBV_QPT_UD;
    say(" op %d", wc->opcode);
    if (receives || fetches) say(" len %u", wc->byte_len);
    if (receives) {
      // Only datagrams come with a GRH that is told of.
      say(" flags %d", wc->wc_flags & (is_datagram ? ~0u : ~(unsigned)IBV_WC_GRH));
      if (wc->wc_flags & IBV_WC_WITH_IMM) say(" imm %x", be32toh(wc->imm_data));
      if (is_datagram) say(" src %d pkey %d", wc->src_qp == peer->qp->qp_num, wc->pkey_index);
    }
  }
  say("]");
}
