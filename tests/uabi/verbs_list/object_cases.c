// Objects that are made with sizes, rights and places at or beyond their limits.
#include <errno.h>
#include <string.h>

#include "cases.h"
#include "choices.h"
#include "device.h"
#include "line.h"

// More than any system makes: programs see the limits by ibv_query_device.
enum { TOO_MANY = 1 << 30 };

// Completion queues are always there: libibverbs itself needs them.
static void spoil_queue_pair(struct ibv_qp_init_attr* init) {
  switch (below(7)) {
    case 0:
      init->qp_type = ONE_OF(0, 1, 5, 7, 8, 9, 10, 0xff, 0x1000);
      break;
    case 1:
      init->cap.max_send_wr = ONE_OF(0, 1, 3, 100, 16384, TOO_MANY, ~0u);
      break;
    case 2:
      init->cap.max_recv_wr = ONE_OF(0, 1, 3, 100, 16384, TOO_MANY, ~0u);
      break;
    case 3:
      init->cap.max_send_sge = ONE_OF(0, 2, 5, 31, 32, 33, ~0u);
      break;
    case 4:
      init->cap.max_recv_sge = ONE_OF(0, 2, 5, 31, 32, 33, ~0u);
      break;
    case 5:
      init->cap.max_inline_data = ONE_OF(1, 16, 17, 100, 400, 512, 513, 4096, ~0u);
      break;
    default:
      init->cap.max_inline_data = ONE_OF(0, 32, 400, 512);
      init->cap.max_send_sge = ONE_OF(0, 1, 5, 26, 32);
  }
}

static void say_capabilities(const char* name, const struct ibv_qp_cap* cap) {
  say(" %s wr %u/%u sge %u/%u inline %u", name, cap->max_send_wr, cap->max_recv_wr,
      cap->max_send_sge, cap->max_recv_sge, cap->max_inline_data);
}

void creating_queue_pairs(void) {
  struct ibv_cq* cq = ibv_create_cq(near_device.context, 64, NULL, NULL, 0);
  struct ibv_srq_init_attr wishes = {.attr = {.max_wr = 4, .max_sge = 1}};
  struct ibv_srq* srq = ibv_create_srq(near_device.pd, &wishes);
  for (int step = 0; step < 4; ++step) {
    const enum ibv_qp_type type = ONE_OF(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type};
    init.cap = (struct ibv_qp_cap){3, 3, 1, 1, 0};
    spoil_queue_pair(&init);
    if (once_in(3)) init.srq = srq;
    ask("create_qp type %d", init.qp_type);
    const struct ibv_qp_cap* cap = &init.cap;
    ask(" wr %u/%u sge %u/%u", cap->max_send_wr, cap->max_recv_wr, cap->max_send_sge,
        cap->max_recv_sge);
    ask(" inline %u srq %d", cap->max_inline_data, init.srq != NULL);
    errno = 0;
    struct ibv_qp* qp = ibv_create_qp(near_device.pd, &init);
    say_errno(qp == NULL ? errno : 0);
    if (qp != NULL) {
      struct ibv_qp_attr attr;
      struct ibv_qp_init_attr back;
      say_capabilities("made", &init.cap);
      say(" ");
      say_errno(ibv_query_qp(qp, &attr, IBV_QP_CAP, &back));
      say_capabilities("query", &attr.cap);
      say(" type %d all %d srq %d", back.qp_type, back.sq_sig_all, back.srq == srq);
    }
    tell();
  }
}

void creating_address_handles(void) {
  for (int step = 0; step < 4; ++step) {
    struct ibv_ah_attr path = right_attributes(0).ah_attr;
    const int which = below(9);
    // clang-format off
    switch (which) {
      case 0: path.is_global = ONE_OF(0, 2, 255); break;
      case 1: path.port_num = ONE_OF(0, 2, 255); break;
      case 2: path.sl = ONE_OF(7, 8, 15, 16, 255); break;
      case 3: path.grh.hop_limit = ONE_OF(0, 1, 255); break;
      case 4: path.grh.flow_label = ONE_OF(0xfffff, 0x100000, ~0u); break;
      case 5: memset(&path.grh.dgid, 0, 16); break;
      case 6: memset(&path.grh.dgid, 0xff, 16); break;
      case 7: path.static_rate = ONE_OF(1, 2, 18, 255);
        path.src_path_bits = ONE_OF(0, 1, 127, 255);
        break;
      default: path.dlid = ONE_OF(0, 1, 0xbfff, 0xc000, 0xffff);
    }
    // clang-format on
    ask("create_ah %d global %d port %d sl %d", which, path.is_global, path.port_num, path.sl);
    ask(" hop %d flow %x rate %d dlid %x", path.grh.hop_limit, path.grh.flow_label,
        path.static_rate, path.dlid);
    errno = 0;
    struct ibv_ah* ah = ibv_create_ah(near_device.pd, &path);
    say_errno(ah == NULL ? errno : 0);
    tell();
  }
}

static int any_access(void) {
  const int access = ONE_OF(0, 1, 3, 5, 7, 15, 31, 47, 2, 8, 10, 0x10, 0x20);
  return once_in(5) ? access ^ (int)(1u << below(32)) : access;
}

static struct ibv_mr* register_some(uint8_t* memory, int access) {
  const uint64_t offset = ONE_OF(0, 0, 1, 100, 4096, ROOM, ~0u);
  const uint64_t length = ONE_OF(0, 1, 4096, ROOM, ROOM, (uint64_t)1 << 40, ~(uint64_t)0);
  const uint64_t iova = ONE_OF(0, 0, 1, 4096, ~(uint64_t)0, ~(uint64_t)4095);
  ask("reg_mr access %x offset %lx length %lx iova %lx", (unsigned)access, offset, length, iova);
  struct ibv_pd* pd = near_device.pd;
  errno = 0;
  struct ibv_mr* mr = iova == 0 ? ibv_reg_mr(pd, memory + offset, length, access)
                                : ibv_reg_mr_iova2(pd, memory + offset, length, iova, access);
  say_errno(mr == NULL ? errno : 0);
  tell();
  return mr;
}

static void reregister(struct ibv_mr* mr, uint8_t* memory, int access) {
  const int flags = ONE_OF(0, 1, 2, 3, 4, 4, 4, 6, 7, 8, 12);
  const int other = once_in(2);
  const uint64_t length = ONE_OF(0, 1, 4096, ROOM);
  ask("rereg_mr flags %x access %x length %lx other pd %d", (unsigned)flags, (unsigned)access,
      length, other);
  struct ibv_pd* pd = other ? near_device.other_pd : near_device.pd;
  errno = 0;
  const int status = ibv_rereg_mr(mr, flags, pd, memory, length, access);
  say("%d ", status);
  say_errno(status != 0 ? errno : 0);
  tell();
  // Whether it has moved there.
  ask("dealloc other pd");
  const int freed = ibv_dealloc_pd(near_device.other_pd);
  say_errno(freed);
  tell();
  if (freed == 0) near_device.other_pd = ibv_alloc_pd(near_device.context);
}

void registering(void) {
  uint8_t* memory = map_room();
  struct ibv_mr* mr = NULL;
  for (int step = 0; step < 5; ++step) {
    const int access = any_access();
    if (mr == NULL || once_in(2)) {
      struct ibv_mr* made = register_some(memory, access);
      if (made != NULL) mr = made;
    } else {
      reregister(mr, memory, access);
    }
  }
}
