// Whose processes an adapter takes for those of its user.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

// Does it in a child in a user namespace that has no number for anybody; its status.
template <class Act>
int as_nobody_known(Act act) {
  constexpr int kNotAllowed = 77;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(unshare(CLONE_NEWUSER) == 0 ? act() : kNotAllowed);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) != kNotAllowed) return WEXITSTATUS(status);
  std::printf("skipped: user namespaces are not allowed here\n");
  return 0;
}

// All users that it has no number for have the same one there.
TEST("neighbour: who may be another user is none, though both have the same number") {
  const int met = as_nobody_known([] {
    Side one(1);
    Side other(2);
    std::atomic<bool> done{false};
    std::thread server([&] {
      while (!done.load()) other.neighbours->serve();
    });
    one.neighbours->meet(other.gid(), 100);
    done.store(true);
    server.join();
    const bool inhabited = one.neighbours->is_inhabited() || other.neighbours->is_inhabited();
    one.go();
    other.go();
    return inhabited ? 1 : 0;
  });
  CHECK_EQ(met, 0);
}

}  // namespace
}  // namespace softhca::testing
