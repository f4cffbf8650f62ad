// Messages from one end of a pair to the other, of which some are flawed at either end.
#include <endian.h>
#include <string.h>

#include "cases.h"
#include "choices.h"
#include "line.h"
#include "pairs.h"

// A Q_Key with its top bit, beside the opcodes.
enum { MOST_POSTED = 8, MOST_SGES = 8, TOP_QKEY = 31 };

static struct ibv_sge any_sge(struct end* end, int slot, uint32_t length) {
  struct ibv_sge sge = {(uintptr_t)end->memory + slot * SLOT, length, end->mr->lkey};
  if (!once_in(14)) return sge;
  const int flaw = below(6);
  ask("!%d", flaw);
  // clang-format off
  switch (flaw) {
    case 0: sge.lkey = 0; break;
    case 1: sge.lkey ^= 1; break;
    case 2: sge.lkey = end->poor->lkey; break;
    case 3: sge.lkey = end->foreign->lkey; break;
    case 4: sge.addr -= ROOM; break;
    default: sge.addr = (uintptr_t)end->memory + ROOM - 4;
  }
  // clang-format on
  return sge;
}

static void post_receives(struct end* end, struct ibv_srq* srq, int count) {
  for (int index = 0; index < count; ++index) {
    const int pieces = ONE_OF(1, 1, 1, 1, 2, 0, 4, 5);
    const int is_datagram = end->type == IBV_QPT_UD;
    struct ibv_sge list[MOST_SGES];
    ask("receive[%d]", pieces);
    for (int piece = 0; piece < pieces; ++piece) {
      uint32_t length = ONE_OF(4096, 4096, 4096, 4096, 1024, 100, 10, 0);
      if (is_datagram && piece == 0) length = ONE_OF(4096, 4096, 140, 40, 39, 10);
      ask(" %u", length);
      list[piece] = any_sge(end, 8 + (index + piece) % 8, length);
    }
    struct ibv_recv_wr wr = {.wr_id = 100 + index, .sg_list = list, .num_sge = pieces}, *bad;
    say_errno(srq != NULL ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(end->qp, &wr, &bad));
    tell();
  }
}

static enum ibv_wr_opcode any_opcode(enum ibv_qp_type type) {
  if (type == IBV_QPT_UD && !once_in(12)) return ONE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM);
  if (type == IBV_QPT_UC && !once_in(12)) {
    return ONE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM);
  }
  return ONE_OF(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
                IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV);
}

struct place {
  uint64_t address;
  uint32_t rkey;
};

static struct place any_place(const struct end* peer, int index) {
  struct place place = {(uintptr_t)peer->memory + 8 * SLOT + 64 * index, peer->mr->rkey};
  if (!once_in(5)) return place;
  const int flaw = below(9);
  ask(" remote!%d", flaw);
  // clang-format off
  switch (flaw) {
    case 0: place.rkey = 0; break;
    case 1: place.rkey ^= 1; break;
    case 2: place.rkey = peer->poor->rkey; break;
    case 3: place.rkey = peer->foreign->rkey; break;
    case 4: place.address += ROOM; break;
    case 5: place.address = (uintptr_t)peer->memory + ROOM - 4; break;
    case 6: place.address += 3; break;
    case 7: place.address = ~(uint64_t)0 - 7; break;
    default: place.rkey = ~0u;
  }
  // clang-format on
  return place;
}

// Whether the program itself may read what the entries name: libibverbs does for inline data.
static int is_readable(const struct end* end, const struct ibv_sge* list, int count) {
  for (int piece = 0; piece < count; ++piece) {
    const uint64_t at = list[piece].addr - (uintptr_t)end->memory;
    if (at > ROOM || list[piece].length > ROOM - at) return 0;
  }
  return 1;
}

// What a request names of its peer, by its opcode.
static void aim(struct ibv_send_wr* wr, const struct end* end, const struct end* peer, int index) {
  const struct place place = any_place(peer, index);
  if (wr->opcode == IBV_WR_SEND_WITH_INV || wr->opcode == IBV_WR_LOCAL_INV) {
    const int which = below(3);
    ask(" key %d", which);
    wr->invalidate_rkey = which == 0 ? place.rkey : which == 1 ? 0 : 0x12345678;
  }
  if (end->type == IBV_QPT_UD) {
    // Whatever the opcode: libibverbs itself reads the address handle.
    const int strange = once_in(8);
    wr->wr.ud.ah = end->ah;
    wr->wr.ud.remote_qpn = strange ? 0xfffff0 : peer->qp->qp_num;
    wr->wr.ud.remote_qkey = ONE_OF(0x11, 0x11, 0x11, 0x11, 0x22, 0x80000000);
    ask(" qpn %d qkey %x", !strange, wr->wr.ud.remote_qkey);
  } else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr->wr.atomic.remote_addr = place.address;
    wr->wr.atomic.rkey = place.rkey;
    uint64_t held = 5;
    if (once_in(2)) memcpy(&held, peer->memory + 8 * SLOT, sizeof held);
    wr->wr.atomic.compare_add = held;
    wr->wr.atomic.swap = 7;
  } else {
    wr->wr.rdma.remote_addr = place.address;
    wr->wr.rdma.rkey = place.rkey;
  }
}

static void prepare(struct ibv_send_wr* wr, struct ibv_sge* list, struct end* end,
                    const struct end* peer, int index) {
  memset(wr, 0, sizeof *wr);
  wr->wr_id = (uint64_t)end->next_id++;
  wr->opcode = any_opcode(end->type);
  wr->sg_list = list;
  wr->num_sge = ONE_OF(1, 1, 1, 1, 2, 0, 4, 5);
  const int is_atomic =
      wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (is_atomic && !once_in(6)) wr->num_sge = 1;
  ask("%s[%d]", opcode_name(wr->opcode), wr->num_sge);
  for (int piece = 0; piece < wr->num_sge; ++piece) {
    uint32_t length = ONE_OF(1, 8, 64, 65, 1000, 1024, 4096, 0);
    if (is_atomic && !once_in(5)) length = 8;
    ask(" %u", length);
    list[piece] = any_sge(end, (index + piece) % 8, length);
  }
  wr->send_flags = once_in(4) ? 0 : IBV_SEND_SIGNALED;
  // For what fetches something, no manual says what that means.
  const int fetches = is_atomic || wr->opcode == IBV_WR_RDMA_READ;
  if (once_in(6) && !fetches && is_readable(end, list, wr->num_sge)) {
    wr->send_flags |= IBV_SEND_INLINE;
  }
  if (once_in(6)) wr->send_flags |= IBV_SEND_FENCE;
  if (once_in(6)) wr->send_flags |= IBV_SEND_SOLICITED;
  ask(" flags %x", wr->send_flags);
  wr->imm_data = htobe32(0xabcd0000u + (uint32_t)index);
  aim(wr, end, peer, index);
}

// Returns the opcodes, as bits.
static unsigned post_sends(struct end* end, const struct end* peer, int count) {
  struct ibv_send_wr wrs[MOST_POSTED];
  struct ibv_sge lists[MOST_POSTED][MOST_SGES];
  unsigned opcodes = 0;
  for (int index = 0; index < count; ++index) {
    prepare(&wrs[index], lists[index], end, peer, index);
    if (index != 0) wrs[index - 1].next = &wrs[index];
    ask("; ");
    opcodes |= 1u << wrs[index].opcode;
    if (end->type == IBV_QPT_UD) opcodes |= wrs[index].wr.ud.remote_qkey >> 31 << TOP_QKEY;
  }
  post_requests(end, wrs);
  tell();
  return opcodes;
}

// What came of requests of these opcodes.
static void tell_outcome(struct pair* pair, const char* when, unsigned opcodes) {
  ask("%s %s", when, type_name(pair->a.type));
  for (int opcode = 0; opcode < TOP_QKEY; ++opcode) {
    if (opcodes & 1u << opcode) ask(" %s", opcode_name(opcode));
  }
  if (opcodes >> TOP_QKEY) ask(" top-qkey");
  tell_pair(pair);
}

static int any_state(void) {
  return once_in(5) ? ONE_OF(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_SQD, IBV_QPS_ERR)
                    : IBV_QPS_RTS;
}

// Both ends to the states that a case begins in.
static void begin(struct pair* pair, enum ibv_qp_type type) {
  struct ibv_qp_attr a = attributes_of(pair, &pair->a), b = attributes_of(pair, &pair->b);
  pair->a.ah = ibv_create_ah(near_device.pd, &a.ah_attr);
  if (once_in(4)) b.qp_access_flags = below(16);
  // With 0, rxe lets READs and atomics wait for ever.
  if (once_in(4)) a.max_rd_atomic = 1 + below(3);
  if (once_in(6)) b.max_dest_rd_atomic = below(3);
  if (once_in(3)) a.rnr_retry = 0;
  const int a_state = any_state(), b_state = any_state();
  ask("%s access %x rd %d/%d rnr %d states %d/%d", type_name(type), b.qp_access_flags,
      a.max_rd_atomic, b.max_dest_rd_atomic, a.rnr_retry, a_state, b_state);
  bring_to(&pair->a, a, a_state);
  bring_to(&pair->b, b, b_state);
  tell();
}

void trafficking(enum ibv_qp_type type) {
  struct pair pair = {0};
  struct ibv_srq_init_attr wishes = {.attr = {.max_wr = 15, .max_sge = 4}};
  struct ibv_srq* srq = once_in(4) ? ibv_create_srq(far_device.pd, &wishes) : NULL;
  const int signal_all = once_in(3);
  make_pair(&pair, type, srq, signal_all);
  ask("all %d srq %d ", signal_all, srq != NULL);
  begin(&pair, type);
  post_receives(&pair.b, srq, below(5));
  tell_outcome(&pair, "then", post_sends(&pair.a, &pair.b, 1 + below(4)));
  if (once_in(3)) {
    post_receives(&pair.b, srq, 1);
    tell_outcome(&pair, "again", post_sends(&pair.a, &pair.b, 1 + below(2)));
  }
  if (once_in(3)) {
    const int state = ONE_OF(IBV_QPS_ERR, IBV_QPS_RESET);
    ask("both to %d", state);
    move_to(&pair.a, state);
    move_to(&pair.b, state);
    tell_pair(&pair);
  }
}
