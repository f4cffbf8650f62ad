// Two adapters meet, and are disturbed at it.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

std::atomic<int> signals_seen{0};

// Whether a thread of this process is in a system call that waits.
bool sleeps(pid_t thread) {
  std::string stat;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), stat);
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end, 3) == ") S";
}

// Programs have signal handlers: profilers, timers, children that end.
TEST("neighbour: a signal while the answer is awaited does not cost the acquaintance") {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { signals_seen.fetch_add(1); };
  CHECK_EQ(sigaction(SIGUSR1, &action, &before), 0);
  Side caller(1);
  Side other(2);
  std::atomic<pid_t> thread{0};
  std::atomic<bool> met{false};
  std::thread meeting([&] {
    thread.store(static_cast<pid_t>(syscall(SYS_gettid)));
    caller.neighbours->meet(other.gid(), kPatienceMs);
    met.store(true);
  });
  // It has called, and waits.
  pollfd called{other.neighbours->ready_fd(), POLLIN, 0};
  CHECK_EQ(poll(&called, 1, kPatienceMs), 1);
  while (!sleeps(thread.load())) std::this_thread::yield();
  for (int seen = signals_seen.load(), end = seen + 3; seen < end && !met.load(); ++seen) {
    pthread_kill(meeting.native_handle(), SIGUSR1);
    while (signals_seen.load() == seen && !met.load()) std::this_thread::yield();
  }
  std::thread server([&] {
    while (!met.load()) other.neighbours->serve();
  });
  meeting.join();
  server.join();
  CHECK_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
  const bool acquainted = caller.neighbours->is_inhabited();
  caller.go();
  other.go();
  CHECK(acquainted);
}

}  // namespace
}  // namespace softhca::testing
