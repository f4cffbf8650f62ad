// Who sleeps is woken: whoever else hears the message that wakes, and whatever becomes of barriers.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>

#include "neighbour/barrier.hpp"
#include "tests/neighbour_welcome.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

// Says what the thread of a driver says before it sleeps on what is readable then.
void go_to_sleep(Side& side) {
  while (is_due(side)) side.neighbours->serve();
  const std::lock_guard lock(side.mutex);
  CHECK(side.neighbours->prepare_to_sleep());
}

TEST("neighbour: who connects does not hear what was said to wake another") {
  Side host(1);
  Guest guest(config_of(2).gids[0]);
  welcome(host, guest);
  go_to_sleep(host);
  guest.agree();
  RingWriter writer(guest.segment.layout().rings[0]);
  RingPlace behind;
  const RingRecord record = writer.begin(kBthBytes, 0, behind);
  std::memset(record.headers, 0, kBthBytes);
  writer.publish(record, behind);
  CHECK(writer.take_sleeper(false));
  CHECK_EQ(send_message(guest.talk.get(), card(MessageKind::WAKE, guest.own), {}), 0);
  CHECK(host.neighbours->path_to(host.gid(), guest.own) != nullptr);
  CHECK(is_due(host));
  host.go();
}

// As a program does that locks itself up when it has begun.
bool forbid_barriers() {
  std::array<sock_filter, 4> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST("neighbour: nobody counts on barriers that cannot be had any more") {
  constexpr int kNotPossible = 77;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int status = kNotPossible;
    try {
      Side host(1);
      Guest first(config_of(2).gids[0]);
      Guest second(config_of(3).gids[0]);
      welcome(host, first);
      const auto& counts_on_them = first.segment.layout().rings[0].reader_orders;
      if (counts_on_them.load() == 1 && forbid_barriers() && !barrier_for_all()) {
        welcome(host, second);
        const std::lock_guard lock(host.mutex);
        static_cast<void>(host.neighbours->prepare_to_sleep());
        status = host.neighbours->prepare_to_sleep() ? static_cast<int>(counts_on_them.load()) : 2;
      }
    } catch (...) {
      status = 99;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotPossible) {
    std::printf("skipped: no barriers, or no filters of system calls\n");
    return;
  }
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST("neighbour: who sleeps hears that its payload could not be read") {
  Side side(1);
  Side other(2);
  introduce(side, other);
  void* const gone =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<std::uintptr_t>(gone);
  const MrInfo mr = side.adapter.reg_mr(side.pd, address, kBytes, address, 0xf).value;
  SendWr write = work(WrOpcode::RDMA_WRITE, side, other);
  write.sges = {{address, kBytes, mr.lkey}};
  post(side, {write});
  go_to_sleep(side);
  munmap(gone, kBytes);
  CHECK(other.neighbours->fetch(kNow));
  CHECK(!other.adapter.exchange(kNow));
  CHECK(is_due(side));
  side.go();
  other.go();
}

}  // namespace
}  // namespace softhca::testing
