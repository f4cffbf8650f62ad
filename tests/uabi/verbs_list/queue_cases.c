// Completion queues and shared receive queues: sizes, limits and what is asked of them.
#include <errno.h>

#include "cases.h"
#include "choices.h"
#include "device.h"
#include "line.h"
#include "settle.h"

enum { TOO_MANY = 1 << 30 };

void creating_completion_queues(void) {
  struct ibv_comp_channel* channel = ibv_create_comp_channel(near_device.context);
  const int cqe = ONE_OF(1, 2, 3, 7, 8, 100, 0, -1, 32767, TOO_MANY);
  const int vector = ONE_OF(0, 0, 0, 1, 2, 64, -1);
  if (once_in(2)) channel = NULL;
  ask("create_cq %d vector %d channel %d", cqe, vector, channel != NULL);
  errno = 0;
  struct ibv_cq* cq = ibv_create_cq(near_device.context, cqe, NULL, channel, vector);
  say_errno(cq == NULL ? errno : 0);
  if (cq != NULL) say(" cqe %d", cq->cqe);
  tell();
  for (int step = 0; step < 4 && cq != NULL; ++step) {
    if (once_in(2)) {
      const int size = ONE_OF(0, -1, 1, 5, 63, 64, 5000, TOO_MANY);
      ask("resize_cq %d", size);
      say_errno(ibv_resize_cq(cq, size));
      say(" cqe %d", cq->cqe);
    } else {
      const int solicited = ONE_OF(0, 1, 2);
      ask("req_notify %d", solicited);
      say_errno(ibv_req_notify_cq(cq, solicited));
    }
    tell();
  }
}

static void post_shared(struct ibv_srq* srq, struct ibv_sge sge) {
  struct ibv_sge list[40] = {sge, sge, sge};
  struct ibv_recv_wr wr = {.sg_list = list, .num_sge = ONE_OF(0, 1, 2, 3, 40)}, *bad;
  ask("post_srq_recv sge %d", wr.num_sge);
  say_errno(ibv_post_srq_recv(srq, &wr, &bad));
}

static void modify_shared(struct ibv_srq* srq) {
  struct ibv_srq_attr attr = {.max_wr = ONE_OF(0, 1, 4, 100), .max_sge = 1};
  attr.srq_limit = ONE_OF(0, 1, 6, 7, 8, 15, 16, 4000);
  const int mask = ONE_OF(0, IBV_SRQ_LIMIT, IBV_SRQ_LIMIT, IBV_SRQ_LIMIT, 4, 4 | IBV_SRQ_LIMIT, 8);
  ask("modify_srq mask %d limit %u", mask, attr.srq_limit);
  say_errno(ibv_modify_srq(srq, &attr, mask));
}

// One below a power of two: rxe's queues have as many places as they are asked for then.
void sharing_receives(void) {
  uint8_t* memory = map_room();
  struct ibv_mr* mr = ibv_reg_mr(near_device.pd, memory, ROOM, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_srq_init_attr wishes = {.attr = {.max_wr = 7, .max_sge = 2}};
  if (once_in(2)) wishes.attr.max_wr = ONE_OF(0, 1, 3, 15, 127, TOO_MANY, ~0u);
  if (once_in(2)) wishes.attr.max_sge = ONE_OF(0, 1, 5, 26, 27, 33, ~0u);
  if (once_in(2)) wishes.attr.srq_limit = ONE_OF(1, 6, 7, 8, ~0u);
  ask("create_srq %u/%u limit %u", wishes.attr.max_wr, wishes.attr.max_sge, wishes.attr.srq_limit);
  errno = 0;
  struct ibv_srq* srq = ibv_create_srq(near_device.pd, &wishes);
  say_errno(srq == NULL ? errno : 0);
  if (srq != NULL) say(" %u/%u", wishes.attr.max_wr, wishes.attr.max_sge);
  tell();
  for (int step = 0; step < 5 && srq != NULL; ++step) {
    if (once_in(3)) {
      post_shared(srq, (struct ibv_sge){(uintptr_t)memory, 8, mr->lkey});
    } else {
      modify_shared(srq);
    }
    struct ibv_srq_attr attr = {0};
    say(" query ");
    say_errno(ibv_query_srq(srq, &attr));
    say(" %u/%u limit %u", attr.max_wr, attr.max_sge, attr.srq_limit);
    settle(NULL, 0, NULL, 0);
    say_events();
    tell();
  }
}
