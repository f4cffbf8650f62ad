// What ibv_query_qp says of attributes, in words that do not depend on the system.
#include "states.h"

#include <string.h>

#include "device.h"
#include "line.h"

int state_of(struct ibv_qp* qp) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 ? (int)attr.qp_state : IBV_QPS_RESET;
}

static void say_path(const char* name, const struct ibv_ah_attr* path) {
  const struct ibv_global_route* grh = &path->grh;
  say(" %s %d/%d/%d/%d/%d/%u/%d", name, path->is_global, path->port_num, path->sl, grh->hop_limit,
      grh->traffic_class, grh->flow_label, path->static_rate);
  if (path->is_global) say("/%s", grh->sgid_index == gid_index ? "own" : "other");
  say("/%s", memcmp(&grh->dgid, &near_device.gid, 16) == 0 ? "self" : "nobody");
}

void say_attributes(struct ibv_qp* qp, int given) {
  struct ibv_qp_attr a;
  struct ibv_qp_init_attr init;
  const int status = ibv_query_qp(qp, &a, (1 << 21) - 1, &init);
  if (status != 0) {
    say(" query ");
    say_errno(status);
    return;
  }
  say(" state %d cur %d draining %d", a.qp_state, a.cur_qp_state, a.sq_draining);
  const struct {
    int mask;
    const char* name;
    uint32_t value;
  } numbers[] = {
      {IBV_QP_ACCESS_FLAGS, "access", a.qp_access_flags},
      {IBV_QP_PKEY_INDEX, "pkey", a.pkey_index},
      {IBV_QP_PORT, "port", a.port_num},
      {IBV_QP_QKEY, "qkey", a.qkey},
      {IBV_QP_PATH_MTU, "mtu", a.path_mtu},
      {IBV_QP_PATH_MIG_STATE, "mig", a.path_mig_state},
      {IBV_QP_RQ_PSN, "rq_psn", a.rq_psn},
      {IBV_QP_SQ_PSN, "sq_psn", a.sq_psn},
      {IBV_QP_DEST_QPN, "dest", a.dest_qp_num},
      {IBV_QP_MAX_QP_RD_ATOMIC, "rd", a.max_rd_atomic},
      {IBV_QP_MAX_DEST_RD_ATOMIC, "dest_rd", a.max_dest_rd_atomic},
      {IBV_QP_MIN_RNR_TIMER, "rnr", a.min_rnr_timer},
      {IBV_QP_TIMEOUT, "timeout", a.timeout},
      {IBV_QP_RETRY_CNT, "retry", a.retry_cnt},
      {IBV_QP_RNR_RETRY, "rnr_retry", a.rnr_retry},
      {IBV_QP_ALT_PATH, "alt_pkey", a.alt_pkey_index},
      {IBV_QP_ALT_PATH, "alt_port", a.alt_port_num},
      {IBV_QP_ALT_PATH, "alt_timeout", a.alt_timeout},
  };
  for (size_t index = 0; index < sizeof numbers / sizeof *numbers; ++index) {
    if (given & numbers[index].mask) say(" %s %x", numbers[index].name, numbers[index].value);
  }
  if (given & IBV_QP_AV) say_path("path", &a.ah_attr);
  if (given & IBV_QP_ALT_PATH) say_path("alt", &a.alt_ah_attr);
}
