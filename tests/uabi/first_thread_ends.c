// Opens a device and registers memory in a thread that outlives the first one of its process:
// `first_thread_ends`. Prints "registered", or what failed.
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 1 << 16 };

static pthread_t first_thread;

static int first_thread_runs(void) {
  char path[64], line[512] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", getpid());
  FILE* file = fopen(path, "r");
  const char* read = file ? fgets(line, sizeof line, file) : NULL;
  if (file) fclose(file);
  const char* name_ends = read ? strrchr(line, ')') : NULL;
  return !name_ends || name_ends[2] != 'Z';
}

static void demand(int holds, const char* what) {
  if (holds) return;
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

static void* second_thread(void* nothing) {
  (void)nothing;
  pthread_join(first_thread, NULL);
  while (first_thread_runs()) sched_yield();
  int count = 0;
  struct ibv_device** devices = ibv_get_device_list(&count);
  demand(count > 0, "device list");
  struct ibv_context* context = ibv_open_device(devices[0]);
  demand(context != NULL, "open");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  demand(pd != NULL, "PD");
  demand(ibv_reg_mr(pd, malloc(BYTES), BYTES, IBV_ACCESS_LOCAL_WRITE) != NULL, "own memory");
  void* shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  demand(ibv_reg_mr(pd, shared, BYTES, IBV_ACCESS_LOCAL_WRITE) != NULL, "shared memory");
  demand(dup(context->cmd_fd) >= 0, "dup");
  printf("registered\n");
  exit(0);
}

int main(void) {
  pthread_t other;
  first_thread = pthread_self();
  pthread_create(&other, NULL, second_thread, NULL);
  pthread_exit(NULL);
}
