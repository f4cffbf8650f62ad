// Windows of both types: bound, bound again, invalidated, and used by the peer.
#include "cases.h"
#include "choices.h"
#include "line.h"
#include "pairs.h"

struct window {
  struct ibv_mw* mw;
  struct ibv_mr* mr;
  uint32_t rkey;
  int is_bound;
};

enum deed { BIND, POST_BIND, INVALIDATE, USE };

static struct ibv_mw_bind_info any_binding(const struct window* window, const struct end* end) {
  const int rights = ONE_OF(0, 1, 2, 4, 8, 6, 14, 14, 14, 0x20, 0x2e, 0x10);
  const uint64_t offset = ONE_OF(0, 64, 4096, ROOM / 2 - 64, ROOM);
  const uint64_t length = ONE_OF(0, 64, 4096, ROOM / 2, ROOM, ~(uint64_t)0);
  ask("offset %lx length %lx rights %x", offset, length, (unsigned)rights);
  return (struct ibv_mw_bind_info){window->mr, (uintptr_t)end->memory + offset, length,
                                   (unsigned)rights};
}

// By the verb of windows of type 1.
static void bind(struct window* window, struct end* end) {
  ask("bind_mw ");
  struct ibv_mw_bind bind = {.wr_id = (uint64_t)end->next_id++};
  bind.bind_info = any_binding(window, end);
  if (once_in(2)) bind.send_flags = IBV_SEND_SIGNALED;
  const int status = ibv_bind_mw(end->qp, window->mw, &bind);
  say_errno(status);
  if (status != 0) return;
  window->rkey = window->mw->rkey;
  // Everything is signaled at this queue pair.
  end->awaited = (int64_t)bind.wr_id;
}

// By a request, for those of type 2.
static void post_bind(struct window* window, struct end* end) {
  struct ibv_send_wr wr = {.wr_id = (uint64_t)end->next_id++, .opcode = IBV_WR_BIND_MW};
  wr.send_flags = IBV_SEND_SIGNALED;
  const int strange = once_in(10);
  ask("post bind other index %d ", strange);
  wr.bind_mw.mw = window->mw;
  wr.bind_mw.rkey = strange ? window->rkey ^ 0x100 : ibv_inc_rkey(window->rkey);
  wr.bind_mw.bind_info = any_binding(window, end);
  post_requests(end, &wr);
  if (!strange) window->rkey = wr.bind_mw.rkey;
}

static void invalidate(struct window* window, struct end* end) {
  struct ibv_send_wr wr = {.wr_id = (uint64_t)end->next_id++, .opcode = IBV_WR_LOCAL_INV};
  wr.send_flags = IBV_SEND_SIGNALED;
  const int which = below(4);
  ask("post local_inv %d", which);
  wr.invalidate_rkey = which == 0 ? window->mr->rkey : which == 1 ? window->rkey ^ 1 : window->rkey;
  post_requests(end, &wr);
}

static void use(const struct window* window, struct end* end, const struct end* peer) {
  struct ibv_sge sge = {(uintptr_t)end->memory, ONE_OF(0, 8, 64, 65), end->mr->lkey};
  struct ibv_send_wr wr = {.wr_id = (uint64_t)end->next_id++, .sg_list = &sge, .num_sge = 1};
  wr.opcode = ONE_OF(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD);
  wr.send_flags = IBV_SEND_SIGNALED;
  const uint64_t offset = ONE_OF(0, 64, 4096, 8192);
  if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    sge.length = 8;
    wr.wr.atomic.remote_addr = (uintptr_t)peer->memory + offset;
    wr.wr.atomic.rkey = window->rkey;
    wr.wr.atomic.compare_add = 3;
  } else {
    wr.wr.rdma.remote_addr = (uintptr_t)peer->memory + offset;
    wr.wr.rdma.rkey = window->rkey;
  }
  ask("peer %s %lx+%u", opcode_name(wr.opcode), offset, sge.length);
  post_requests(end, &wr);
}

static enum deed any_deed(const struct window* window) {
  const enum deed deed = ONE_OF(BIND, POST_BIND, POST_BIND, INVALIDATE, USE, USE);
  if (deed == POST_BIND && window->mw->type == IBV_MW_TYPE_1 && once_in(2)) return BIND;
  // Linux 6.1's rxe panics when a window is invalidated that is not bound.
  return deed == INVALIDATE && !window->is_bound ? USE : deed;
}

// Whether the last request of an end succeeded.
static int succeeded(const struct heard* queue, uint64_t wr_id) {
  for (int at = 0; at < queue->count; ++at) {
    if (queue->list[at].wr_id == wr_id) return queue->list[at].status == IBV_WC_SUCCESS;
  }
  return 0;
}

static void step(struct window* window, struct pair* pair) {
  const enum deed deed = any_deed(window);
  const uint64_t wr_id = (uint64_t)pair->b.next_id;
  switch (deed) {
    case BIND:
      bind(window, &pair->b);
      break;
    case POST_BIND:
      post_bind(window, &pair->b);
      break;
    case INVALIDATE:
      invalidate(window, &pair->b);
      break;
    case USE:
      use(window, &pair->a, &pair->b);
  }
  if (deed != USE) {
    struct end* ends[] = {&pair->a, &pair->b};
    settle(pair->queues, 4, ends, 2);
    window->is_bound = deed != INVALIDATE && succeeded(&pair->queues[2], wr_id);
  }
  tell_pair(pair);
}

static void tell_status(const char* what, int status) {
  ask("%s", what);
  say_errno(status);
  tell();
}

void binding_windows(void) {
  struct pair pair = {0};
  make_pair(&pair, IBV_QPT_RC, NULL, 1);
  const int flags = ONE_OF(0x11, 0x1f, 0x1f, 0x1f, 0xf);
  const int other_pd = once_in(6), window_in_other_pd = once_in(8);
  const enum ibv_mw_type type = ONE_OF(IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_MW_TYPE_2);
  const int state = once_in(6) ? below(5) : IBV_QPS_RTS;
  struct ibv_pd *pd = far_device.pd, *other = far_device.other_pd;
  struct window window = {.mr = ibv_reg_mr(other_pd ? other : pd, pair.b.memory, ROOM / 2, flags)};
  window.mw = ibv_alloc_mw(window_in_other_pd ? other : pd, type);
  ask("window type %d other pd %d region %x other pd %d state %d", type, window_in_other_pd,
      (unsigned)flags, other_pd, state);
  bring_to(&pair.a, attributes_of(&pair, &pair.a), IBV_QPS_RTS);
  bring_to(&pair.b, attributes_of(&pair, &pair.b), state);
  say("%d", window.mw != NULL && window.mr != NULL);
  tell();
  window.rkey = window.mw->rkey;
  for (int turn = 0; turn < 4; ++turn) {
    step(&window, &pair);
    if (!once_in(5)) continue;
    // Which is refused while a window is bound to it.
    tell_status("dereg_mr", ibv_dereg_mr(window.mr));
    return;
  }
  tell_status("dealloc_mw", ibv_dealloc_mw(window.mw));
  tell_status("dereg_mr", ibv_dereg_mr(window.mr));
}
