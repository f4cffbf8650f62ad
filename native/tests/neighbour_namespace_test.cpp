// A peer whose PID namespace is another one: it cannot send us a signal, nor shall it stop us
// otherwise.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>

#include "neighbour/shared_buffers.hpp"
#include "tests/neighbour_guest.hpp"
#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

constexpr int kNotAllowed = 77;

// As root of a new user namespace, if one may not do without; to others it stays the same user.
bool leave_processes() {
  if (unshare(CLONE_NEWPID) == 0) return true;
  const uid_t uid = geteuid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return false;
  prctl(PR_SET_DUMPABLE, 1);
  std::ofstream map("/proc/self/uid_map");
  map << uid << ' ' << uid << " 1" << std::flush;
  return map.good();
}

// Memory that whoever reads it waits for, without end, if that can be had; readable otherwise.
void* memory_that_waits() {
  void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api{UFFD_API, 0, 0};
  uffdio_register range{
      {reinterpret_cast<std::uintptr_t>(at), 4096}, UFFDIO_REGISTER_MODE_MISSING, 0};
  if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0) return at;
  static_cast<void>(ioctl(faults, UFFDIO_REGISTER, &range));
  return at;
}

// Greets with a token that lies there. Whether the host says that it reads this memory.
int greet_from(const std::function<void*()>& place, const Gid& own, const Gid& host) {
  Guest guest(own);
  guest.connect_to(host);
  NeighbourMessage hello = card(MessageKind::HELLO, own);
  hello.token_address = reinterpret_cast<std::uintptr_t>(place());
  CHECK_EQ(send_message(guest.talk.get(), hello, {guest.segment.fd(), guest.bell.get()}), 0);
  wait_for(guest.talk.get());
  NeighbourMessage answer;
  std::vector<FileDescriptor> fds;
  CHECK_EQ(receive_message(guest.talk.get(), answer, fds), 0);
  return static_cast<int>(guest.segment.layout().rings[0].reader_fetches.load());
}

int in_a_child(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int status = 99;
    try {
      status = act();
    } catch (...) {
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

// What a guest does, and says, in a process of its own.
using GuestProcess = std::function<int(const Gid& own, const Gid& host)>;

// The same in another PID namespace.
GuestProcess elsewhere(const GuestProcess& guest) {
  return [guest](const Gid& own, const Gid& host) {
    if (!leave_processes()) return kNotAllowed;
    return in_a_child([&] { return guest(own, host); });
  };
}

// What a guest says that a host serves, and for which that does something besides.
int served(const GuestProcess& guest, const std::function<void(Side&, const Gid&)>& besides) {
  return in_a_child([&] {
    Side host(1);
    const Gid other = config_of(2).gids[0];
    const pid_t child = fork();
    if (child == 0) {
      alarm(50);
      _exit(guest(other, host.gid()));
    }
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      host.neighbours->serve();
      besides(host, other);
    }
    host.go();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
  });
}

void nothing(Side&, const Gid&) {}

GuestProcess greeting_from(const std::function<void*()>& place) {
  return [place](const Gid& own, const Gid& host) { return greet_from(place, own, host); };
}

TEST("neighbour: memory of a peer that has another PID namespace is neither read nor waited for") {
  const int there = served(elsewhere(greeting_from(memory_that_waits)), nothing);
  if (there == kNotAllowed) {
    std::printf("skipped: PID namespaces are not allowed here\n");
    return;
  }
  CHECK_EQ(there, 0);
}

// A guest that sleeps, and has spoilt its bell. How many bells it was handed, and whether it was
// woken.
int sleep_with_spoilt_bell(const Gid& own, const Gid& host) {
  Guest guest(own);
  std::vector<FileDescriptor> fds = guest.meet(host);
  const int handed = static_cast<int>(fds.size());
  // Flags are those of all who have the bell.
  CHECK_EQ(fcntl(guest.bell.get(), F_SETFL, 0), 0);
  CHECK_EQ(eventfd_write(guest.bell.get(), UINT64_MAX - 1), 0);
  guest.segment.layout().rings[1].reader_asleep.store(1);
  guest.agree();
  wait_for(guest.talk.get());
  NeighbourMessage message;
  CHECK_EQ(receive_message(guest.talk.get(), message, fds), 0);
  return handed;
}

// What a guest says to which the host sends what `bytes` gives.
int sent_to(const GuestProcess& guest, const std::function<Sge(Side&)>& bytes) {
  bool sent = false;
  return served(guest, [&](Side& host, const Gid& other) {
    if (sent || host.neighbours->path_to(host.gid(), other) == nullptr) return;
    host.connect(other, 1);
    SendWr send;
    send.sges = {bytes(host)};
    post(host, {send});
    sent = true;
  });
}

TEST("neighbour: the bell of a peer that has another PID namespace is not waited for") {
  const int handed = sent_to(elsewhere(sleep_with_spoilt_bell), [](Side& host) {
    return Sge{host.address(), 64, host.mr.lkey};
  });
  if (handed == kNotAllowed) {
    std::printf("skipped: PID namespaces are not allowed here\n");
    return;
  }
  CHECK_EQ(handed, 0);
}

// Whether a long payload was left in place for a guest, and its file handed over.
int take_long(const Gid& own, const Gid& host) {
  Guest guest(own);
  static_cast<void>(guest.meet(host));
  RingShared& ring = guest.segment.layout().rings[1];
  guest.agree();
  const SharedSlot& slot = ring.slots[0];
  while (slot.word.load() == 0) sched_yield();  // Its alarm ends what never comes.
  char byte = 0;
  const bool is_told = recv(guest.talk.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  NeighbourMessage message;
  std::vector<FileDescriptor> fds;
  const bool is_handed =
      is_told && receive_message(guest.talk.get(), message, fds) == 0 && fds.size() == 1;
  return (slot.piece_count != 0 ? 1 : 0) + (is_handed ? 2 : 0);
}

// In a file of memory, whose descriptor lets whoever has it write.
Sge in_shared_memory(Side& host) {
  constexpr std::uint64_t kLong = 64 * 1024;
  static const FileDescriptor file(memfd_create("buffer", MFD_CLOEXEC));
  CHECK_EQ(ftruncate(file.get(), kLong), 0);
  void* const at = mmap(nullptr, kLong, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  CHECK(at != MAP_FAILED);
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  CHECK(shared_buffers().add(address, kLong, file.get()));
  const auto mr = host.adapter.reg_mr(host.pd, address, kLong, address, kAccessLocalWrite);
  CHECK(mr.ok());
  return {address, kLong, mr.value.lkey};
}

TEST("neighbour: a file of memory is handed to peers that share our PID namespace alone") {
  CHECK_EQ(sent_to(take_long, in_shared_memory), 3);
  const int there = sent_to(elsewhere(take_long), in_shared_memory);
  if (there == kNotAllowed) {
    std::printf("skipped: PID namespaces are not allowed here\n");
    return;
  }
  CHECK_EQ(there, 0);
}

TEST("neighbour: memory of a peer that shares our PID namespace is read") {
  static const std::uint64_t token = 0;
  const auto place = [] { return const_cast<std::uint64_t*>(&token); };
  const int here = served(greeting_from(place), nothing);
  const std::uint64_t there = 1;
  std::uint64_t copy = 0;
  iovec to{&copy, sizeof copy};
  iovec from{const_cast<std::uint64_t*>(&there), sizeof there};
  // As far as anybody's is: Yama, or a sandbox, may forbid it.
  CHECK(here == 1 || process_vm_readv(getppid(), &to, 1, &from, 1, 0) < 0);
}

}  // namespace
}  // namespace softhca::testing
