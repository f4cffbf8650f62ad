// A pair of connected UDP sockets on loopback, one of them in a child process that serves orders.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "probe.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

struct order {
  size_t size;
  long count;
};

static int near_socket;
static int far_socket;
static int order_pipe[2];
static int answer_pipe[2];

static inline int bound_socket(struct sockaddr_in* address) {
  const int made = socket(AF_INET, SOCK_DGRAM, 0);
  must(made >= 0, "socket");
  *address = (struct sockaddr_in){.sin_family = AF_INET};
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  must(bind(made, (struct sockaddr*)address, sizeof *address) == 0, "bind");
  socklen_t bytes = sizeof *address;
  must(getsockname(made, (struct sockaddr*)address, &bytes) == 0, "getsockname");
  return made;
}

// Forks a child that calls `serve` for each order.
static inline pid_t start_far_side(void (*serve)(struct order)) {
  struct sockaddr_in near_address;
  struct sockaddr_in far_address;
  near_socket = bound_socket(&near_address);
  far_socket = bound_socket(&far_address);
  must(connect(near_socket, (struct sockaddr*)&far_address, sizeof far_address) == 0, "connect");
  must(connect(far_socket, (struct sockaddr*)&near_address, sizeof near_address) == 0, "connect");
  must(pipe(order_pipe) == 0 && pipe(answer_pipe) == 0, "pipe");
  const pid_t child = fork();
  must(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    stay_on(1);
    must(write(answer_pipe[1], "r", 1) == 1, "write");
    struct order order;
    while (read(order_pipe[0], &order, sizeof order) == sizeof order) serve(order);
    _exit(0);
  }
  char ready;
  must(read(answer_pipe[0], &ready, 1) == 1, "read");
  stay_on(0);
  return child;
}

static inline void give_order(size_t size, long count) {
  const struct order order = {size, count};
  must(write(order_pipe[1], &order, sizeof order) == sizeof order, "write");
}
