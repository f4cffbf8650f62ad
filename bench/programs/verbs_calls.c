// What calls cost a program of libibverbs: `doorbell COUNT`, the median microseconds of an
// ibv_post_send while nobody else has anything to do; `getpid COUNT` and `read COUNT`, the
// nanoseconds of a system call.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void must(int held, const char* what) {
  if (held) return;
  perror(what);
  exit(1);
}

static int by_size(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

static struct ibv_qp* make(struct ibv_pd* pd, struct ibv_cq* cq) {
  struct ibv_qp_init_attr wishes = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  wishes.cap.max_send_wr = wishes.cap.max_recv_wr = 16;
  wishes.cap.max_send_sge = wishes.cap.max_recv_sge = 1;
  struct ibv_qp* qp = ibv_create_qp(pd, &wishes);
  must(qp != NULL, "ibv_create_qp");
  return qp;
}

static void connect_qp(struct ibv_qp* qp, uint32_t other, const union ibv_gid* gid) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                    IBV_QP_ACCESS_FLAGS) == 0, "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = other;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = *gid;
  attr.ah_attr.grh.hop_limit = 64;
  must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER) == 0, "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC) == 0, "RTS");
}

static void measure_doorbell(int count) {
  static char memory[8192];
  struct ibv_device** list = ibv_get_device_list(NULL);
  must(list != NULL && list[0] != NULL, "ibv_get_device_list");
  struct ibv_context* context = ibv_open_device(list[0]);
  must(context != NULL, "ibv_open_device");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 64, NULL, NULL, 0);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof(memory),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(pd != NULL && cq != NULL && mr != NULL, "objects");
  union ibv_gid gid;
  must(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  struct ibv_qp *near = make(pd, cq), *far = make(pd, cq);
  connect_qp(near, far->qp_num, &gid);
  connect_qp(far, near->qp_num, &gid);
  double* costs = malloc(sizeof(double) * (size_t)count);
  for (int turn = 0; turn < count; ++turn) {
    struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    struct ibv_send_wr* bad = NULL;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
    wr.wr.rdma.rkey = mr->rkey;
    const double before = now_us();
    must(ibv_post_send(near, &wr, &bad) == 0, "ibv_post_send");
    costs[turn] = now_us() - before;
    struct ibv_wc wc;
    int got;
    while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) {
    }
    must(got == 1 && wc.status == IBV_WC_SUCCESS, "completion");
    usleep(50);  // Everybody else goes to sleep.
  }
  qsort(costs, (size_t)count, sizeof(double), by_size);
  printf("%.3f\n", costs[count / 2]);
}

static void measure_call(const char* name, long count) {
  const int zero = open("/dev/zero", O_RDONLY);
  char byte;
  const int reads = strcmp(name, "read") == 0;
  double best = 1e9;
  for (int turn = 0; turn < 20; ++turn) {
    const double before = now_us();
    for (long call = 0; call < count / 20; ++call) {
      if (reads) {
        must(read(zero, &byte, 1) == 1, "read");
      } else {
        syscall(SYS_getpid);
      }
    }
    const double cost = (now_us() - before) * 1e3 / (double)(count / 20);
    if (cost < best) best = cost;
  }
  printf("%.2f\n", best);
}

int main(int words, char** word) {
  must(words == 3, "usage: verbs_calls doorbell|getpid|read COUNT");
  if (strcmp(word[1], "doorbell") == 0) {
    measure_doorbell(atoi(word[2]));
  } else {
    measure_call(word[1], atol(word[2]));
  }
  return 0;
}
