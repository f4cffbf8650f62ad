// A region that begins at 0, for the keys of both ends: `zero_based`. Prints what has arrived of a
// WRITE between two places of it.
#include <string.h>

#include "connected.h"

enum { BYTES = 4096, FROM = 64, TO = 2048 };

int main(void) {
  struct ibv_context* context = open_first_device();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 8, NULL, NULL, 0);
  char* memory = aligned_alloc(BYTES, BYTES);
  must(pd != NULL && cq != NULL && memory != NULL, "objects");
  memset(memory, 0, BYTES);
  strcpy(memory + FROM, "from an offset to an offset");
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED;
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, BYTES, access);
  must(mr != NULL, "ibv_reg_mr");
  union ibv_gid gid;
  must(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  struct ibv_qp *near = make_rc_qp(pd, cq, cq, 4), *far = make_rc_qp(pd, cq, cq, 4);
  connect_rc_qp(near, far->qp_num, &gid);
  connect_rc_qp(far, near->qp_num, &gid);
  struct ibv_sge sge = {FROM, 32, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = TO;
  wr.wr.rdma.rkey = mr->rkey;
  must(ibv_post_send(near, &wr, &bad) == 0, "ibv_post_send");
  struct ibv_wc wc;
  int got;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) continue;
  must(got == 1, "ibv_poll_cq");
  printf("%s: %s\n", ibv_wc_status_str(wc.status), memory + TO);
  return 0;
}
