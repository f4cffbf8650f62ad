// Probe s: bytes a second that arrive over loopback in datagrams of the size, which leave in trains
// (UDP_SEGMENT) and arrive in trains (UDP_GRO). What the receiver cannot take is lost and does not
// count.
#include "udp.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

// Bytes come from and go to buffers of a message's size, not always the same ones, which a cache
// would hold.
enum { MOST_SEGMENTS = 64, MOST_BYTES = 65000, BUFFER_BYTES = 1 << 20 };

static unsigned char buffer[BUFFER_BYTES + 65536];

static size_t segments_of(size_t size) {
  const size_t fit = MOST_BYTES / size;
  return fit < MOST_SEGMENTS ? fit : MOST_SEGMENTS;
}

static double received_per_second(void) {
  double first = 0;
  double last = 0;
  double bytes = 0;
  size_t at = 0;
  double asked_at = seconds_now();
  for (;;) {
    const ssize_t got = recv(far_socket, buffer + at, 65536, MSG_DONTWAIT);
    if (got < 0) {
      // The sender closes with a single byte, which may be lost as well.
      if (seconds_now() - (last != 0 ? last : asked_at) > 0.5) break;
      continue;
    }
    if (got == 1) break;
    last = seconds_now();
    at = (at + (size_t)got) % BUFFER_BYTES;
    if (first == 0) {
      first = last;
    } else {
      bytes += (double)got;
    }
  }
  return bytes / (last - first);
}

static void receive(struct order order) {
  (void)order;
  const double rate = received_per_second();
  must(write(answer_pipe[1], &rate, sizeof rate) == sizeof rate, "write");
}

static double read_probe(size_t size, long count) {
  const int segment = (int)size;
  must(setsockopt(near_socket, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0, "UDP_SEGMENT");
  give_order(size, count);
  const size_t segments = segments_of(size);
  size_t at = 0;
  for (long sent = 0; sent < count; sent += (long)segments) {
    if (send(near_socket, buffer + at, segments * size, 0) < 0) {
      must(errno == ENOBUFS || errno == EAGAIN, "send");
    }
    at = (at + segments * size) % BUFFER_BYTES;
  }
  usleep(2000);
  must(send(near_socket, buffer, 1, 0) == 1, "send");
  double rate;
  must(read(answer_pipe[0], &rate, sizeof rate) == sizeof rate, "read");
  return rate;
}

int main(int count, char** words) {
  take_arguments(count, words);
  start_far_side(receive);
  const int on = 1;
  must(setsockopt(far_socket, SOL_UDP, UDP_GRO, &on, sizeof on) == 0, "UDP_GRO");
  const int wanted = 4 << 20;
  setsockopt(far_socket, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted);
  answer_lines(read_probe);
  return 0;
}
