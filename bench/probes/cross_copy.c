// Probe v: bytes a second of process_vm_readv from a buffer of another process.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "probe.h"

static size_t mapped;
static unsigned char* far;  // The child's copy lies at the same address.
static unsigned char* near;
static pid_t child;

static void map(size_t size) {
  if (child != 0) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    munmap(far, mapped);
    munmap(near, mapped);
  }
  mapped = size;
  far = pages(size, 0);
  near = pages(size, 0);
  int ready[2];
  must(pipe(ready) == 0, "pipe");
  child = fork();
  must(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(far, 2, size);  // Pages of its own.
    must(write(ready[1], "r", 1) == 1, "write");
    for (;;) pause();
  }
  char byte;
  must(read(ready[0], &byte, 1) == 1, "read");
  close(ready[0]);
  close(ready[1]);
}

static double read_probe(size_t size, long count) {
  if (size != mapped) map(size);
  const struct iovec there = {far, size};
  const struct iovec here = {near, size};
  double start = 0;
  for (long turn = 0; turn <= count; ++turn) {
    if (turn == 1) start = seconds_now();
    must(process_vm_readv(child, &here, 1, &there, 1, 0) == (ssize_t)size, "process_vm_readv");
  }
  return (double)size * (double)count / (seconds_now() - start);
}

int main(int count, char** words) {
  take_arguments(count, words);
  stay_on(0);
  answer_lines(read_probe);
  if (child != 0) kill(child, SIGKILL);
  return 0;
}
