// What calls cost a program of libibverbs: `doorbell COUNT`, `arm COUNT` and `stat COUNT`, the
// median microseconds of an ibv_post_send, of an ibv_req_notify_cq and of a stat(2) while nobody
// else has anything to do; `getpid COUNT` and `read COUNT`, the nanoseconds of a system call.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../tests/uabi/connected.h"

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_size(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

static void print_median(double* costs, int count) {
  qsort(costs, (size_t)count, sizeof(double), by_size);
  printf("%.3f\n", costs[count / 2]);
}

static void rest(void) { usleep(50); }  // Everybody else goes to sleep.

static void measure_arm(int count) {
  struct ibv_context* context = open_first_device();
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  struct ibv_cq* cq = ibv_create_cq(context, 64, NULL, channel, 0);
  must(cq != NULL, "ibv_create_cq");
  double* costs = malloc(sizeof(double) * (size_t)count);
  for (int turn = 0; turn < count; ++turn) {
    const double before = now_us();
    must(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
    costs[turn] = now_us() - before;
    rest();
  }
  print_median(costs, count);
}

static void measure_doorbell(int count) {
  static char memory[8192];
  struct ibv_context* context = open_first_device();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 64, NULL, NULL, 0);
  struct ibv_mr* mr =
      ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(pd != NULL && cq != NULL && mr != NULL, "objects");
  union ibv_gid gid;
  must(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  struct ibv_qp *near = make_rc_qp(pd, cq, cq, 16), *far = make_rc_qp(pd, cq, cq, 16);
  connect_rc_qp(near, far->qp_num, &gid);
  connect_rc_qp(far, near->qp_num, &gid);
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
    rest();
  }
  print_median(costs, count);
}

static void measure_stat(int count) {
  double* costs = malloc(sizeof(double) * (size_t)count);
  for (int turn = 0; turn < count; ++turn) {
    struct stat file;
    const double before = now_us();
    must(stat("/", &file) == 0, "stat");
    costs[turn] = now_us() - before;
    rest();
  }
  print_median(costs, count);
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
  must(words == 3, "usage: verbs_calls doorbell|arm|stat|getpid|read COUNT");
  if (strcmp(word[1], "doorbell") == 0) {
    measure_doorbell(atoi(word[2]));
  } else if (strcmp(word[1], "arm") == 0) {
    measure_arm(atoi(word[2]));
  } else if (strcmp(word[1], "stat") == 0) {
    measure_stat(atoi(word[2]));
  } else {
    measure_call(word[1], atol(word[2]));
  }
  return 0;
}
