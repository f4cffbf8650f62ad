// Seconds of half a round trip of SENDs between two processes, each way to the receiver's
// completion. As the probes do, it answers lines "SIZE COUNT"; the size is an argument besides.
//
//     round_trip PROCESSOR PROCESSOR SIZE shared|udp

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "caller.hpp"

namespace {

using softhca::Completion;
using softhca::SendWr;
using softhca::bench::Caller;
using softhca::bench::Card;
using softhca::bench::give_up;

constexpr std::uint32_t kReceives = 64;
constexpr long kBatch = 16;

void stay_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(processor), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) give_up("sched_setaffinity");
}

void tell(int way, const void* what, std::size_t bytes) {
  if (write(way, what, bytes) != static_cast<ssize_t>(bytes)) give_up("write");
}

bool hear(int way, void* what, std::size_t bytes) {
  return read(way, what, bytes) == static_cast<ssize_t>(bytes);
}

void wait_for(Caller& caller, std::uint32_t cq) {
  std::array<Completion, 1> one;
  while (caller.poll(cq, one) == 0) {
  }
}

// The same number of messages either way; one in a batch is signaled, and receives are posted again
// a batch at a time: right behind a message that has left, when nobody waits for this side.
void exchange(Caller& caller, bool first, long count) {
  const SendWr plain = caller.send_of_everything(false);
  const SendWr signaled = caller.send_of_everything(true);
  bool owes = false;  // The completion of the last batch and its receives.
  const auto settle = [&] {
    if (!std::exchange(owes, false)) return;
    wait_for(caller, caller.send_cq);
    caller.post_recv(kBatch);
  };
  for (long batch = 0; batch < count / kBatch; ++batch) {
    for (long turn = 1; turn <= kBatch; ++turn) {
      if (!first) wait_for(caller, caller.recv_cq);
      caller.post_send(turn == kBatch ? signaled : plain);
      settle();
      if (first) wait_for(caller, caller.recv_cq);
    }
    owes = true;
  }
  settle();
}

void meet(Caller& caller, int way) {
  const Card ours = caller.card();
  Card theirs;
  tell(way, &ours, sizeof ours);
  if (!hear(way, &theirs, sizeof theirs)) give_up("the other side is gone");
  caller.connect(theirs);
  caller.post_recv(kReceives);
  char ready = 'r';
  tell(way, &ready, 1);
  if (!hear(way, &ready, 1)) give_up("the other side is gone");
}

int answer(std::size_t bytes, bool udp_only, int way) {
  Caller caller(bytes, udp_only);
  meet(caller, way);
  std::size_t size = 0;
  long count = 0;
  while (std::scanf("%zu %ld", &size, &count) == 2) {
    tell(way, &count, sizeof count);
    const auto start = std::chrono::steady_clock::now();
    exchange(caller, true, count);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    std::printf("%.17g\n", spent.count() / static_cast<double>(count / kBatch * kBatch) / 2);
    std::fflush(stdout);
  }
  return 0;
}

int serve(std::size_t bytes, bool udp_only, int way) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Caller caller(bytes, udp_only);
  meet(caller, way);
  long count = 0;
  while (hear(way, &count, sizeof count)) exchange(caller, false, count);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) give_up("usage: round_trip PROCESSOR PROCESSOR SIZE shared|udp");
  const std::size_t bytes = std::strtoul(words[3], nullptr, 10);
  const bool udp_only = std::strcmp(words[4], "udp") == 0;
  int ways[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ways) != 0) give_up("socketpair");
  const pid_t child = fork();
  if (child < 0) give_up("fork");
  stay_on(std::atoi(words[child == 0 ? 2 : 1]));
  close(ways[child == 0 ? 0 : 1]);
  return child == 0 ? serve(bytes, udp_only, ways[1]) : answer(bytes, udp_only, ways[0]);
}
