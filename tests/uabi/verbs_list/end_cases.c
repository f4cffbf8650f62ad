// Objects that are destroyed while others need them, and groups that are joined and left.
#include "cases.h"
#include "choices.h"
#include "device.h"
#include "line.h"

enum { OBJECTS = 9 };

struct family {
  struct ibv_comp_channel* channel;
  struct ibv_cq* cq;
  struct ibv_srq* srq;
  struct ibv_qp *rc, *ud;
  struct ibv_mr* mr;
  struct ibv_mw* mw;
  struct ibv_ah* ah;
};

// Number `last` of group 239.0.0.x, or of another first byte.
static union ibv_gid group_gid(uint8_t first, uint8_t last) {
  return (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, [12] = first, [15] = last}};
}

static void make_family(struct family* its) {
  struct ibv_pd* pd = near_device.pd;
  its->channel = ibv_create_comp_channel(near_device.context);
  its->cq = ibv_create_cq(near_device.context, 8, NULL, its->channel, 0);
  struct ibv_srq_init_attr wishes = {.attr = {.max_wr = 4, .max_sge = 1}};
  its->srq = ibv_create_srq(pd, &wishes);
  struct ibv_qp_init_attr init = {.send_cq = its->cq, .recv_cq = its->cq, .srq = its->srq};
  init.cap = (struct ibv_qp_cap){4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  its->rc = ibv_create_qp(pd, &init);
  init.srq = NULL;
  init.qp_type = IBV_QPT_UD;
  its->ud = ibv_create_qp(pd, &init);
  its->mr = ibv_reg_mr(pd, map_room(), ROOM, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  its->mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  struct ibv_ah_attr path = right_attributes(0).ah_attr;
  its->ah = ibv_create_ah(pd, &path);
}

static int destroy(struct family* its, int which) {
  switch (which) {
    case 0:
      return ibv_destroy_comp_channel(its->channel);
    case 1:
      return ibv_destroy_cq(its->cq);
    case 2:
      return ibv_destroy_srq(its->srq);
    case 3:
      return ibv_destroy_qp(its->rc);
    case 4:
      return ibv_destroy_qp(its->ud);
    case 5:
      return ibv_dereg_mr(its->mr);
    case 6:
      return ibv_dealloc_mw(its->mw);
    case 7:
      return ibv_destroy_ah(its->ah);
    default:
      return ibv_dealloc_pd(near_device.pd);
  }
}

void destroying(void) {
  static const char* const kNames[OBJECTS] = {"channel", "cq", "srq", "rc", "ud",
                                              "mr",      "mw", "ah",  "pd"};
  struct family its;
  make_family(&its);
  if (once_in(2)) {
    const union ibv_gid group = group_gid(239, 9);
    ask("attach");
    say_errno(ibv_attach_mcast(its.ud, &group, 0));
    tell();
  }
  int gone = 0;
  for (int step = 0; step < 14; ++step) {
    const int which = below(OBJECTS);
    if (gone & 1 << which) continue;
    ask("destroy %s", kNames[which]);
    const int status = destroy(&its, which);
    if (status == 0) gone |= 1 << which;
    say_errno(status);
    tell();
  }
}

void joining_groups(void) {
  struct ibv_cq* cq = ibv_create_cq(near_device.context, 8, NULL, NULL, 0);
  const enum ibv_qp_type type = ONE_OF(IBV_QPT_UD, IBV_QPT_UD, IBV_QPT_UD, IBV_QPT_RC);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type};
  init.cap = (struct ibv_qp_cap){4, 4, 1, 1, 0};
  struct ibv_qp* qp = ibv_create_qp(near_device.pd, &init);
  for (int step = 0; step < 5; ++step) {
    const int last = below(3);
    const int first = once_in(4) ? ONE_OF(223, 240) : 239;
    const union ibv_gid group = group_gid((uint8_t)first, (uint8_t)last);
    const int lid = ONE_OF(0, 0, 0, 1, 0xc000, 0xffff);
    const int leave = once_in(2);
    ask("%s %s %d.0.0.%d lid %x", leave ? "detach" : "attach", type_name(type), first, last,
        (unsigned)lid);
    say_errno(leave ? ibv_detach_mcast(qp, &group, lid) : ibv_attach_mcast(qp, &group, lid));
    tell();
  }
  ask("destroy");
  say_errno(ibv_destroy_qp(qp));
  tell();
}
