// Probe u: half a round trip of a datagram of the size over loopback, in seconds; both spin.
#include "udp.h"

static unsigned char datagram[65536];

// False if nothing came for very long: somebody lost a datagram.
static int spin_receive(int from) {
  const double end = seconds_now() + 30;
  for (long tries = 0;; ++tries) {
    if (recv(from, datagram, sizeof datagram, MSG_DONTWAIT) >= 0) return 1;
    if (tries % 4096 == 4095 && seconds_now() > end) return 0;
  }
}

static void echo(struct order order) {
  for (long turn = 0; turn < order.count; ++turn) {
    if (!spin_receive(far_socket)) return;
    must(send(far_socket, datagram, order.size, 0) >= 0, "send");
  }
}

static double read_probe(size_t size, long count) {
  give_order(size, count);
  double start = 0;
  for (long turn = 0; turn < count; ++turn) {
    if (turn == 1) start = seconds_now();  // The first one wakes the other side.
    must(send(near_socket, datagram, size, 0) >= 0, "send");
    must(spin_receive(near_socket), "a datagram was lost");
  }
  return (seconds_now() - start) / (double)(count - 1) / 2;
}

int main(int count, char** words) {
  take_arguments(count, words);
  start_far_side(echo);
  answer_lines(read_probe);
  return 0;
}
