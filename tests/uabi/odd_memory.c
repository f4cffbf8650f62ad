// Registers memory that is not as most is, and says of each kind whether it can be registered.
// Of what can be written and not be read, bytes are sent too, in messages short and long.
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "connected.h"

enum { PAGE = 4096, BYTES = 16 * PAGE };

static struct ibv_pd* pd;

static struct ibv_mr* try(const char* name, void* memory, size_t length, int access) {
  must(memory != MAP_FAILED, name);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, length, access);
  printf("%s: %s\n", name, mr != NULL ? "registered" : strerrorname_np(errno));
  return mr;
}

static void* map(int rights, int flags, int file, size_t length) {
  return mmap(NULL, length, rights, flags, file, 0);
}

static void send_from(struct ibv_context* context, struct ibv_mr* from) {
  char* memory = aligned_alloc(PAGE, BYTES);
  struct ibv_mr* to =
      ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_cq* cq = ibv_create_cq(context, 8, NULL, NULL, 0);
  must(to != NULL && cq != NULL, "objects");
  union ibv_gid gid;
  must(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  struct ibv_qp *near = make_rc_qp(pd, cq, cq, 4), *far = make_rc_qp(pd, cq, cq, 4);
  connect_rc_qp(near, far->qp_num, &gid);
  connect_rc_qp(far, near->qp_num, &gid);
  for (uint32_t length = 32; length <= BYTES; length *= 2048) {
    memset(memory, 0, BYTES);
    struct ibv_sge sge = {(uintptr_t)from->addr, length, from->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)memory;
    wr.wr.rdma.rkey = to->rkey;
    must(ibv_post_send(near, &wr, &bad) == 0, "ibv_post_send");
    struct ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0) continue;
    printf("%u bytes: %s, %d %d\n", length, ibv_wc_status_str(wc.status), memory[0],
           memory[length - 1]);
  }
}

int main(void) {
  struct ibv_context* context = open_first_device();
  pd = ibv_alloc_pd(context);
  must(pd != NULL, "ibv_alloc_pd");
  const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  char* written = map(PROT_WRITE, anonymous, -1, BYTES);
  must(written != MAP_FAILED, "mmap");
  memset(written, 7, BYTES);
  try("write only, to be read", written, BYTES, 0);
  struct ibv_mr* mr = try("write only, to be written", written, BYTES, IBV_ACCESS_LOCAL_WRITE);
  if (mr != NULL) send_from(context, mr);
  try("read only, to be written", map(PROT_READ, anonymous, -1, BYTES), BYTES,
      IBV_ACCESS_LOCAL_WRITE);
  const int rights = PROT_READ | PROT_WRITE;
  const int file = memfd_create("short", 0);
  must(ftruncate(file, PAGE + 1) == 0, "ftruncate");
  for (int shares = 0; shares <= 1; ++shares) {
    char* begin = map(rights, shares ? MAP_SHARED : MAP_PRIVATE, file, 3 * PAGE);
    try("up to a file's end", begin, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE);
    try("beyond it", begin, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE);
  }
  const int secret = (int)syscall(SYS_memfd_secret, 0);
  if (secret < 0) return 0;
  must(ftruncate(secret, PAGE) == 0, "ftruncate");
  char* hidden = map(rights, MAP_SHARED, secret, PAGE);
  if (hidden == MAP_FAILED) return 0;  // Beyond what may be locked.
  hidden[0] = 1;
  try("secret", hidden, PAGE, IBV_ACCESS_LOCAL_WRITE);
  return 0;
}
