// Transitions of one queue pair, with attributes that are missing, superfluous or out of range.
#include "cases.h"
#include "choices.h"
#include "device.h"
#include "line.h"
#include "states.h"

static void spoil_path(struct ibv_ah_attr* path) {
  switch (below(5)) {
    case 0:
      path->is_global = ONE_OF(0, 2);
      break;
    case 1:
      path->port_num = ONE_OF(0, 2, 255);
      break;
    case 2:
      path->sl = ONE_OF(7, 15, 16, 255);
      break;
    case 3:
      path->grh.hop_limit = ONE_OF(0, 1, 255);
      path->grh.traffic_class = ONE_OF(0, 32, 255);
      path->grh.flow_label = ONE_OF(0, 0xfffff, 0x100000, 0xffffffff);
      break;
    default:
      path->static_rate = ONE_OF(1, 2, 5, 18, 255);
  }
}

// Gives one attribute a value at or beyond its limits.
static void spoil_attribute(struct ibv_qp_attr* attr) {
  const int alternate = once_in(4);
  const int which = below(24);
  ask(" spoil %d%s", which, alternate ? "alt" : "");
  // clang-format off
  switch (which) {
    case 0: attr->port_num = ONE_OF(0, 2, 255); break;
    case 1: attr->pkey_index = ONE_OF(1, 63, 64, 65535); break;
    case 2: attr->path_mtu = ONE_OF(0, 1, 5, 6, 7, 200); break;
    case 3: attr->min_rnr_timer = ONE_OF(0, 31, 32, 255); break;
    case 4: attr->timeout = ONE_OF(0, 31, 31, 32, 255); break;
    case 5: attr->retry_cnt = ONE_OF(0, 7, 8, 255); break;
    case 6: attr->rnr_retry = ONE_OF(0, 7, 8, 255); break;
    case 7: attr->max_rd_atomic = ONE_OF(0, 1, 3, 5, 128, 129, 255); break;
    case 8: attr->max_dest_rd_atomic = ONE_OF(0, 1, 3, 5, 128, 129, 255); break;
    case 9: attr->rq_psn = ONE_OF(0, 0xffffff, 0x1000000, 0xffffffff); break;
    case 10: attr->sq_psn = ONE_OF(0, 0xffffff, 0x1000000, 0xffffffff); break;
    case 11: attr->dest_qp_num = ONE_OF(0, 1, 0xffffff, 0x1000000, 0xffffffff); break;
    case 12: attr->qp_access_flags = ONE_OF(0, 1, 0x10, 0x20, 0x40, 0x3f, 0x100, 1 << 20, 1 << 30);
      break;
    case 13: attr->qkey = ONE_OF(0, 0x80000000, 0xffffffff); break;
    case 14: attr->cur_qp_state = below(9); break;
    case 15: attr->path_mig_state = below(5); break;
    case 16: attr->alt_port_num = ONE_OF(0, 2, 255); break;
    case 17: attr->alt_pkey_index = ONE_OF(1, 64, 65535); break;
    case 18: attr->alt_timeout = ONE_OF(0, 31, 32, 255); break;
    default: spoil_path(alternate ? &attr->alt_ah_attr : &attr->ah_attr);
  }
  // clang-format on
}

// A transition from `*state` that is nearly right; `*given` collects what has been set.
static void modify(struct ibv_qp* qp, enum ibv_qp_type type, int* state, int* given) {
  static const int kNext[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,  IBV_QPS_SQD,
                              IBV_QPS_RTS,  IBV_QPS_RTS, IBV_QPS_RESET};
  struct ibv_qp_attr attr = right_attributes(0x123);
  const int to = once_in(4) ? (int)below(8) : kNext[*state];
  int mask = right_mask(type, to);
  if (*state >= IBV_QPS_RTS && to == IBV_QPS_RTS) mask = IBV_QP_STATE;
  if (once_in(8)) mask &= ~IBV_QP_STATE;
  attr.qp_state = to;
  attr.cur_qp_state = *state;
  int flips = once_in(2) ? 0 : 1 + below(2);
  while (flips-- > 0) mask ^= 1 << (once_in(40) ? 21 + below(10) : below(21));
  ask("modify %s %d to %d mask %x", type_name(type), *state, to, (unsigned)mask);
  if (once_in(2)) spoil_attribute(&attr);
  const int status = ibv_modify_qp(qp, &attr, mask);
  say_errno(status);
  *state = state_of(qp);
  if (status == 0) *given = *state == IBV_QPS_RESET ? 0 : *given | mask;
  say_attributes(qp, *given);
  tell();
}

void modifying(void) {
  struct ibv_cq* cq = ibv_create_cq(near_device.context, 64, NULL, NULL, 0);
  const enum ibv_qp_type type = ONE_OF(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type};
  init.cap = (struct ibv_qp_cap){4, 4, 1, 1, 0};
  struct ibv_qp* qp = ibv_create_qp(near_device.pd, &init);
  int given = 0, state = IBV_QPS_RESET;
  ask("new %s", type_name(type));
  say_attributes(qp, given);
  tell();
  // Right ones first, so that later states are seen too.
  for (int right = below(5); right > 0; --right) {
    struct ibv_qp_attr attr = right_attributes(0x123);
    const int to = state == IBV_QPS_SQD ? IBV_QPS_RESET : state + 1;
    attr.qp_state = to;
    ask("right %s to %d", type_name(type), to);
    say_errno(ibv_modify_qp(qp, &attr, right_mask(type, to)));
    state = to;
    given = to == IBV_QPS_RESET ? 0 : given | right_mask(type, to);
    say_attributes(qp, given);
    tell();
  }
  for (int step = 0; step < 5; ++step) modify(qp, type, &state, &given);
}
