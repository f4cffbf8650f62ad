// The round trip of probe u by sockets like softhca's: connected to nobody, they ask for the sender
// of a datagram, and take trains.
#include "udp.h"

static unsigned char datagram[65536];

static int spin_receive(int from) {
  const double end = seconds_now() + 30;
  struct iovec bytes = {datagram, sizeof datagram};
  struct sockaddr_storage sender;
  char control[256];
  for (long tries = 0;; ++tries) {
    struct msghdr message = {.msg_name = &sender,
                             .msg_namelen = sizeof sender,
                             .msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    if (recvmsg(from, &message, MSG_DONTWAIT) >= 0) return 1;
    if (tries % 4096 == 4095 && seconds_now() > end) return 0;
  }
}

static struct sockaddr_in address_of(int socket) {
  struct sockaddr_in address;
  socklen_t bytes = sizeof address;
  must(getsockname(socket, (struct sockaddr*)&address, &bytes) == 0, "getsockname");
  return address;
}

static void send_to(int from, const struct sockaddr_in* to, size_t size) {
  must(sendto(from, datagram, size, 0, (const struct sockaddr*)to, sizeof *to) >= 0, "sendto");
}

static void echo(struct order order) {
  const struct sockaddr_in near_address = address_of(near_socket);
  for (long turn = 0; turn < order.count; ++turn) {
    if (!spin_receive(far_socket)) return;
    send_to(far_socket, &near_address, order.size);
  }
}

static double read_probe(size_t size, long count) {
  const struct sockaddr_in far_address = address_of(far_socket);
  give_order(size, count);
  double start = 0;
  for (long turn = 0; turn < count; ++turn) {
    if (turn == 1) start = seconds_now();  // The first one wakes the other side.
    send_to(near_socket, &far_address, size);
    must(spin_receive(near_socket), "a datagram was lost");
  }
  return (seconds_now() - start) / (double)(count - 1) / 2;
}

static void ask_like_softhca(int socket) {
  const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
  const int on = 1;
  must(connect(socket, &nobody, sizeof nobody) == 0, "connect");
  // Its port went with the connection.
  const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  must(bind(socket, (const struct sockaddr*)&loopback, sizeof loopback) == 0, "bind");
  setsockopt(socket, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
}

int main(int count, char** words) {
  take_arguments(count, words);
  start_far_side(echo);  // Both sides share the sockets.
  ask_like_softhca(near_socket);
  ask_like_softhca(far_socket);
  answer_lines(read_probe);
  return 0;
}
