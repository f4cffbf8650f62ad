// What programs of libibverbs that run on our adapters begin with: each opens the first device, and
// connects queue pairs of it to each other.
#pragma once

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static inline void must(int held, const char* what) {
  if (held) return;
  perror(what);
  exit(1);
}

static inline struct ibv_context* open_first_device(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  must(list != NULL && list[0] != NULL, "ibv_get_device_list");
  struct ibv_context* context = ibv_open_device(list[0]);
  must(context != NULL, "ibv_open_device");
  return context;
}

static inline struct ibv_qp* make_rc_qp(struct ibv_pd* pd, struct ibv_cq* send_cq,
                                        struct ibv_cq* recv_cq, uint32_t depth) {
  struct ibv_qp_init_attr wishes = {.qp_type = IBV_QPT_RC};
  wishes.send_cq = send_cq;
  wishes.recv_cq = recv_cq;
  wishes.cap.max_send_wr = wishes.cap.max_recv_wr = depth;
  wishes.cap.max_send_sge = wishes.cap.max_recv_sge = 1;
  struct ibv_qp* qp = ibv_create_qp(pd, &wishes);
  must(qp != NULL, "ibv_create_qp");
  return qp;
}

// Brings a queue pair to RTS, connected to another of the device, whose GID it is.
static inline void connect_rc_qp(struct ibv_qp* qp, uint32_t other, const union ibv_gid* gid) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                    IBV_QP_ACCESS_FLAGS) == 0, "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = other;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = *gid;
  attr.ah_attr.grh.hop_limit = 64;
  must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER) == 0, "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 17;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC) == 0, "RTS");
}
