// What every probe does: it reads lines "SIZE COUNT" and answers each with one number. The two
// processors that it may use are its arguments.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int probe_cpus[2];

static inline double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void must(int holds, const char* what) {
  if (holds) return;
  perror(what);
  exit(1);
}

// Keeps the calling thread on the first or the second of the processors.
static inline void stay_on(int which) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(probe_cpus[which], &set);
  must(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

// A thread that begins on the second processor: one that had to move there by itself would wait for
// the first, where its maker spins.
static inline pthread_t thread_on_second(void* (*body)(void*)) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(probe_cpus[1], &set);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  must(pthread_attr_setaffinity_np(&attributes, sizeof set, &set) == 0, "processor of a thread");
  pthread_t made;
  must(pthread_create(&made, &attributes, body, NULL) == 0, "pthread_create");
  pthread_attr_destroy(&attributes);
  return made;
}

// Memory of its own, in large pages if it shall be and the system has them.
static inline void* pages(size_t bytes, int large) {
  void* made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(made != MAP_FAILED, "mmap");
  if (large) madvise(made, bytes, MADV_HUGEPAGE);
  memset(made, 1, bytes);
  return made;
}

static inline void take_arguments(int count, char** words) {
  if (count != 3) {
    fprintf(stderr, "usage: %s PROCESSOR PROCESSOR\n", words[0]);
    exit(2);
  }
  probe_cpus[0] = atoi(words[1]);
  probe_cpus[1] = atoi(words[2]);
}

static inline void answer_lines(double (*read_probe)(size_t size, long count)) {
  size_t size;
  long count;
  while (scanf("%zu %ld", &size, &count) == 2) {
    printf("%.17g\n", read_probe(size, count));
    fflush(stdout);
  }
}
