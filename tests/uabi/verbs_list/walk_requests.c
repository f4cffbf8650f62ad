// What the ends of a walk post: requests with nothing wrong with them, but for a wrong key now and
// then.
#include <endian.h>
#include <string.h>

#include "choices.h"
#include "line.h"
#include "states.h"
#include "walk.h"

enum { MOST_POSTED = 6, MOST_SGES = 3 };

static enum ibv_wr_opcode any_opcode(enum ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UD:
      return ONE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM);
    case IBV_QPT_UC:
      return ONE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                    IBV_WR_RDMA_WRITE_WITH_IMM);
    default:
      return ONE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                    IBV_WR_ATOMIC_FETCH_AND_ADD);
  }
}

static int is_atomic(enum ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// The key of the peer's memory, or of a window on it, or a wrong one.
static uint32_t any_rkey(const struct world* world, const struct end* peer) {
  const int window = once_in(3) ? (int)below(WINDOWS) : NOTHING;
  if (once_in(40)) {
    ask("@wrong");
    return 0x7777;
  }
  if (window == NOTHING || peer != &world->ends[1]) return peer->mr->rkey;
  ask("@window %d", window);
  return world->rkeys[window];
}

static void aim(const struct world* world, struct ibv_send_wr* wr, const struct end* end,
                const struct end* peer) {
  const uint64_t address = (uintptr_t)peer->memory + 0x8000 + 8 * below(64);
  const uint32_t rkey = any_rkey(world, peer);
  if (is_atomic(wr->opcode)) {
    wr->wr.atomic.remote_addr = address;
    wr->wr.atomic.rkey = rkey;
    wr->wr.atomic.compare_add = 1;
  } else if (world->type == IBV_QPT_UD) {
    wr->wr.ud.ah = end->ah;
    wr->wr.ud.remote_qpn = peer->qp->qp_num;
    wr->wr.ud.remote_qkey = once_in(6) ? 0x12 : 0x11;
    ask(" qkey %x", wr->wr.ud.remote_qkey);
  } else {
    wr->wr.rdma.remote_addr = address;
    wr->wr.rdma.rkey = rkey;
  }
}

static void prepare(struct world* world, struct ibv_send_wr* wr, struct ibv_sge* list,
                    const struct end* end, const struct end* peer) {
  memset(wr, 0, sizeof *wr);
  wr->wr_id = (uint64_t)world->next_id++;
  wr->opcode = any_opcode(world->type);
  wr->send_flags = once_in(3) ? 0 : IBV_SEND_SIGNALED;
  if (once_in(2)) wr->send_flags |= IBV_SEND_SOLICITED;
  if (once_in(5)) wr->send_flags |= IBV_SEND_FENCE;
  wr->imm_data = htobe32((uint32_t)wr->wr_id);
  wr->sg_list = list;
  wr->num_sge = is_atomic(wr->opcode) ? 1 : 1 + below(MOST_SGES);
  ask(" %lu:%s flags %x", wr->wr_id, opcode_name(wr->opcode), wr->send_flags);
  for (int piece = 0; piece < wr->num_sge; ++piece) {
    uint32_t length = ONE_OF(0, 1, 8, 100, 1000, 2000, 8000);
    if (world->type == IBV_QPT_UD) length = ONE_OF(0, 1, 8, 100, 300);
    if (is_atomic(wr->opcode)) length = 8;
    ask(",%u", length);
    const uintptr_t at = (uintptr_t)end->memory + below(8) * SLOT / 2;
    list[piece] = (struct ibv_sge){at, length, end->mr->lkey};
  }
  aim(world, wr, end, peer);
}

void post_walk_sends(struct world* world, int which) {
  struct end *end = &world->ends[which], *peer = &world->ends[which ^ 1];
  struct ibv_send_wr wrs[MOST_POSTED];
  struct ibv_sge lists[MOST_POSTED][MOST_SGES];
  const int count = ONE_OF(1, 1, 2, 3, MOST_POSTED);
  ask(" posts");
  for (int index = 0; index < count; ++index) {
    prepare(world, &wrs[index], lists[index], end, peer);
    if (index != 0) wrs[index - 1].next = &wrs[index];
  }
  post_requests(end, wrs);
}

void post_walk_receives(struct world* world, int which, int count) {
  struct end* end = &world->ends[which];
  for (int index = 0; index < count; ++index) {
    const uintptr_t at = (uintptr_t)end->memory + 0x4000 + index % 4 * SLOT;
    struct ibv_sge sge = {at, 24000, end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1000 + (uint64_t)world->next_id++}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    const int shared = which % 2 != 0 && world->srq != NULL;
    say_errno(shared ? ibv_post_srq_recv(world->srq, &wr, &bad)
                     : ibv_post_recv(end->qp, &wr, &bad));
    say(" ");
  }
}

void bind_walk_window(struct world* world, int window) {
  struct end* end = &world->ends[1];
  ask(" window %d", window);
  if (world->type != IBV_QPT_RC || end->qp == NULL) return;
  struct ibv_mw_bind_info info = {.mr = world->window_mr, .addr = (uintptr_t)end->memory};
  info.length = ONE_OF(ROOM, 0x8100);
  info.mw_access_flags = ONE_OF(14, 2, 4, 8);
  ask(" length %lx rights %x", info.length, info.mw_access_flags);
  const uint64_t wr_id = (uint64_t)world->next_id++;
  if (window == 0) {
    struct ibv_mw_bind bind = {wr_id, IBV_SEND_SIGNALED, info};
    const int status = ibv_bind_mw(end->qp, world->mws[0], &bind);
    say_errno(status);
    if (status != 0) return;
    world->rkeys[0] = world->mws[0]->rkey;
    end->awaited = (int64_t)wr_id;
  } else if (!world->second_is_bound) {
    struct ibv_send_wr wr = {.wr_id = wr_id, .opcode = IBV_WR_BIND_MW};
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = world->mws[1];
    wr.bind_mw.rkey = ibv_inc_rkey(world->rkeys[1]);
    wr.bind_mw.bind_info = info;
    post_requests(end, &wr);
    if (state_of(end->qp) != IBV_QPS_RTS) return;
    world->second_is_bound = 1;
    world->rkeys[1] = wr.bind_mw.rkey;
  }
}
