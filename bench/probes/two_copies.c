// From the memory of one process into that of another by a third, with process_vm_readv on one
// processor and process_vm_writev on the other: bytes a second of what bounds a supervisor of
// programs whose memory is private.
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "probe.h"

enum { PIECE = 128 << 10, SLOTS = 4 };  // They stay in the caches.

static unsigned char slots[SLOTS][PIECE];
static unsigned char* theirs;  // At the same address in both.
static size_t mapped;
static pid_t from, to;
static long pieces;
static atomic_long taken, given;

// A process that has its own copy of `theirs`.
static pid_t owner(void) {
  int ready[2];
  must(pipe(ready) == 0, "pipe");
  const pid_t made = fork();
  must(made >= 0, "fork");
  if (made == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(theirs, 2, mapped);
    must(write(ready[1], "", 1) == 1, "write");
    for (;;) pause();
  }
  char byte;
  must(read(ready[0], &byte, 1) == 1, "read");
  close(ready[0]);
  close(ready[1]);
  return made;
}

static void end(pid_t process) {
  kill(process, SIGKILL);
  waitpid(process, NULL, 0);
}

static void begin(size_t size) {
  if (mapped != 0) {
    end(from);
    end(to);
    munmap(theirs, mapped);
  }
  mapped = size;
  theirs = pages(size, 0);
  from = owner();
  to = owner();
}

static unsigned char* piece_of_theirs(long piece) {
  return theirs + (size_t)piece % (mapped / PIECE) * PIECE;
}

static void* give(void* unused) {
  for (long piece = 0; piece < pieces; ++piece) {
    while (atomic_load(&taken) <= piece) continue;
    const struct iovec here = {slots[piece % SLOTS], PIECE};
    const struct iovec there = {piece_of_theirs(piece), PIECE};
    must(process_vm_writev(to, &here, 1, &there, 1, 0) == PIECE, "process_vm_writev");
    atomic_store(&given, piece + 1);
  }
  return unused;
}

// `size` is of so many pieces.
static double read_probe(size_t size, long count) {
  if (size != mapped) begin(size);
  pieces = count * (long)(size / PIECE);
  taken = given = 0;
  const double start = seconds_now();
  const pthread_t giver = thread_on_second(give);
  for (long piece = 0; piece < pieces; ++piece) {
    while (piece - atomic_load(&given) >= SLOTS) continue;
    const struct iovec here = {slots[piece % SLOTS], PIECE};
    const struct iovec there = {piece_of_theirs(piece), PIECE};
    must(process_vm_readv(from, &here, 1, &there, 1, 0) == PIECE, "process_vm_readv");
    atomic_store(&taken, piece + 1);
  }
  pthread_join(giver, NULL);
  return (double)size * (double)count / (seconds_now() - start);
}

int main(int count, char** words) {
  take_arguments(count, words);
  stay_on(0);
  answer_lines(read_probe);
  if (mapped != 0) {
    end(from);
    end(to);
  }
  return 0;
}
