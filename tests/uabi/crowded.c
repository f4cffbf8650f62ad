// `crowded FILES TIMES`: one thread opens and closes the device so many times, while another one
// opens and closes files, whose numbers are the lowest from FILES on. Exits with 0 if each had its
// own all the time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FILES_AT_ONCE = 4 };

static atomic_int done;
static int refused;

static void* open_devices(void* times) {
  for (intptr_t left = (intptr_t)times; left > 0; --left) {
    const int device = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    if (device < 0) {
      perror("open");
      ++refused;
    } else {
      close(device);
    }
  }
  done = 1;
  return NULL;
}

int main(int words, char** word) {
  if (words != 3) return 2;
  while (dup(0) < atoi(word[1]) - 1) continue;
  pthread_t thread;
  if (pthread_create(&thread, NULL, open_devices, (void*)(intptr_t)atoi(word[2])) != 0) return 2;
  int lost = 0;
  while (!done) {
    int files[FILES_AT_ONCE];
    for (unsigned at = 0; at < FILES_AT_ONCE; ++at) files[at] = eventfd(at + 1, EFD_NONBLOCK);
    for (unsigned at = 0; at < FILES_AT_ONCE; ++at) {
      eventfd_t count = 0;
      if (eventfd_read(files[at], &count) != 0 || count != at + 1) ++lost;
      close(files[at]);
    }
  }
  pthread_join(thread, NULL);
  printf("%d lost, %d refused\n", lost, refused);
  return lost != 0 || refused != 0;
}
