// Makes pairs; says what completed at them, their states and their memory.
#include "pairs.h"

#include "line.h"
#include "states.h"

void make_pair(struct pair* pair, enum ibv_qp_type type, struct ibv_srq* srq, int signal_all) {
  furnish_end(&pair->a, &near_device);
  furnish_end(&pair->b, &far_device);
  make_queue_pair(&pair->a, type, NULL, signal_all);
  make_queue_pair(&pair->b, type, srq, signal_all);
  struct ibv_cq* cqs[] = {pair->a.send_cq, pair->a.recv_cq, pair->b.send_cq, pair->b.recv_cq};
  for (int index = 0; index < 4; ++index) pair->queues[index].cq = cqs[index];
  pair->a.next_id = 200;
  pair->b.next_id = 300;
}

struct ibv_qp_attr attributes_of(const struct pair* pair, const struct end* end) {
  const struct end* peer = end == &pair->a ? &pair->b : &pair->a;
  struct ibv_qp_attr attr = right_attributes(peer->qp->qp_num);
  attr.ah_attr.grh.dgid = peer->device->gid;
  return attr;
}

void tell_pair(struct pair* pair) {
  static const char* const kNames[] = {"a sends", "a receives", "b sends", "b receives"};
  struct end* ends[] = {&pair->a, &pair->b};
  settle(pair->queues, 4, ends, 2);
  for (int index = 0; index < 4; ++index) {
    struct heard* queue = &pair->queues[index];
    say(" %s", kNames[index]);
    for (int at = 0; at < queue->count; ++at) {
      say_completion(&queue->list[at], ends[index / 2], ends[1 - index / 2]);
    }
  }
  say(" states %d/%d", state_of(pair->a.qp), state_of(pair->b.qp));
  say(" memory %08x/%08x", memory_of(&pair->a), memory_of(&pair->b));
  say_events();
  tell();
  for (int index = 0; index < 4; ++index) pair->queues[index].count = 0;
}
