// Probe m: bytes a second of memcpy from one buffer of the size to another.
#include "probe.h"

static unsigned char* from;
static unsigned char* to;
static size_t mapped;

static double read_probe(size_t size, long count) {
  if (size != mapped) {
    if (mapped != 0) {
      munmap(from, mapped);
      munmap(to, mapped);
    }
    from = pages(size, 1);
    to = pages(size, 1);
    mapped = size;
  }
  memcpy(to, from, size);
  const double start = seconds_now();
  for (long turn = 0; turn < count; ++turn) {
    memcpy(to, from, size);
    __asm__ volatile("" ::: "memory");
  }
  return (double)size * (double)count / (seconds_now() - start);
}

int main(int count, char** words) {
  take_arguments(count, words);
  stay_on(0);
  answer_lines(read_probe);
  return 0;
}
