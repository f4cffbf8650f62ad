// Peers that ask for more than anybody needs: of the one who answers them, time and descriptors.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "neighbour/fair_share.hpp"
#include "neighbour/lent_memories.hpp"
#include "neighbour/mapped_buffers.hpp"
#include "tests/neighbour_welcome.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

std::ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// Sockets that were let in at `door`. Not by the number of descriptors: what others have left may
// still be closed.
std::ptrdiff_t let_in(const Name& door) {
  std::ptrdiff_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    Name own;
    own.length = sizeof own.address;
    int listens = 1;
    socklen_t size = sizeof listens;
    count += getsockname(fd, own.get(), &own.length) == 0 && own.length == door.length &&
                     std::memcmp(&own.address, &door.address, door.length) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 0
                 ? 1
                 : 0;
  }
  return count;
}

// Anybody may knock, other users too, and as fast as doors are opened.
TEST("neighbour: guests are let in a few at a time, and each in the end") {
  Side host(1);
  constexpr std::ptrdiff_t kGuests = 60;
  std::vector<FileDescriptor> guests;
  Name name = name_of(host.gid());
  for (int i = 0; i < kGuests; ++i) {
    guests.push_back(local_socket());
    CHECK_EQ(connect(guests.back().get(), name.get(), name.length), 0);
  }
  host.neighbours->serve();
  CHECK(let_in(name) > 0 && let_in(name) < kGuests / 2);
  while (is_due(host)) host.neighbours->serve();
  CHECK_EQ(let_in(name), kGuests);
  host.go();
}

TEST("neighbour: guests that say nothing do not use up the descriptors") {
  Side host(1);
  std::vector<FileDescriptor> guests;
  Name name = name_of(host.gid());
  const std::ptrdiff_t before = descriptors();
  constexpr std::ptrdiff_t kGuests = 200;
  for (int i = 0; i < kGuests; ++i) {
    guests.push_back(local_socket());
    CHECK_EQ(connect(guests.back().get(), name.get(), name.length), 0);
    while (is_due(host)) host.neighbours->serve();
  }
  CHECK(descriptors() - before < kGuests + kGuests / 2);
  // One that does is heard.
  Guest polite(config_of(2).gids[0]);
  welcome(host, polite);
  host.go();
}

TEST("neighbour: who greets again and again is one neighbour") {
  Side host(1);
  Guest guest(config_of(2).gids[0]);
  std::vector<FileDescriptor> before;
  for (int i = 0; i < 20; ++i) {
    welcome(host, guest);
    before.push_back(std::move(guest.talk));
  }
  CHECK_EQ(host.neighbours->count(), 1u);
  host.go();
}

TEST("neighbour: who greets with an address that is not its own is none") {
  Side host(1);
  Guest guest(config_of(2).gids[0]);
  const auto hello = [&](const Gid& gid) {
    guest.connect_to(host.gid());
    CHECK_EQ(send_message(guest.talk.get(), card(MessageKind::HELLO, gid),
                          {guest.segment.fd(), guest.bell.get()}),
             0);
    host.neighbours->serve();
    host.neighbours->serve();
    return host.neighbours->is_inhabited();
  };
  CHECK(!hello(config_of(3).gids[0]));  // Nobody has it on this host.
  Gid taken = config_of(4).gids[0];
  int ends[2];
  CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor ready(ends[0]);
  FileDescriptor says(ends[1]);
  const pid_t other = fork();
  if (other == 0) {
    alarm(60);
    const Guest owner(taken);
    CHECK_EQ(write(says.get(), "r", 1), 1);
    for (;;) pause();
  }
  says.reset();
  wait_for(ready.get());
  CHECK(!hello(taken));
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  CHECK(hello(guest.own));
  host.go();
}

// A limit that is low enough to be reached.
struct FewDescriptors {
  explicit FewDescriptors(rlim_t count) {
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit few{count, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before{};
};

TEST("neighbour: those who greet under many addresses leave descriptors to the program") {
  constexpr rlim_t kLimit = 160;
  Side host(1);
  std::vector<std::unique_ptr<Guest>> guests;
  std::size_t known = 0;
  {
    const FewDescriptors few(kLimit);
    do {
      known = host.neighbours->count();
      guests.push_back(
          std::make_unique<Guest>(config_of(static_cast<std::uint8_t>(guests.size() + 2)).gids[0]));
      guests.back()->connect_to(host.gid());
      guests.back()->greet();
      host.neighbours->serve();
      host.neighbours->serve();
    } while (host.neighbours->count() > known);
    CHECK(static_cast<rlim_t>(descriptors()) < kLimit - kLimit / 8);
    // Nor are others asked; as long as what tests before this one have left is being closed, there
    // is room again, and somebody may be.
    std::vector<FileDescriptor> taken;
    const auto is_asked = [&](const Guest& guest) {
      while (leaves_descriptors(FileDescriptor(dup(0)).get())) taken.emplace_back(dup(0));
      host.neighbours->meet(guest.own);
      pollfd asked{guest.listener.get(), POLLIN, 0};
      return poll(&asked, 1, 0) != 0;
    };
    CHECK(!std::ranges::all_of(guests, [&](const auto& guest) { return is_asked(*guest); }));
  }
  CHECK(known > 0);
  // Where there are enough, it is a neighbour.
  welcome(host, *guests.back());
  CHECK_EQ(host.neighbours->count(), known + 1);
  host.go();
}

TEST("neighbour: memories that are lent leave descriptors to the program") {
  constexpr rlim_t kLimit = 100;
  LentMemories lent;
  std::uint64_t number = 0;
  {
    const FewDescriptors few(kLimit);
    do {
      lent.add(++number, 0, FileDescriptor(open("/proc/self/mem", O_RDONLY | O_CLOEXEC)));
    } while (lent.find(number) != nullptr);
    CHECK(static_cast<rlim_t>(descriptors()) < kLimit - kLimit / 8);
  }
  CHECK(number > 1);
}

// The adapter may be locked while it listens.
TEST("neighbour: one that never stops talking is not listened to for ever") {
  Side host(1);
  Guest guest(config_of(2).gids[0]);
  welcome(host, guest);
  const auto talk = [&] {
    int sent = 0;
    while (send_message(guest.talk.get(), card(MessageKind::AGREED, guest.own), {}) == 0) ++sent;
    return sent;
  };
  CHECK(talk() > 100);
  host.neighbours->serve();
  CHECK(talk() <= 64);
  // What is left is heard later.
  while (is_due(host)) host.neighbours->serve();
  CHECK(talk() > 100);
  CHECK(host.neighbours->is_inhabited());
  host.go();
}

TEST("neighbour: who has many buffers mapped does not use up the room for mappings") {
  const FileDescriptor file(memfd_create("buffer", MFD_CLOEXEC));
  CHECK_EQ(ftruncate(file.get(), 4096), 0);
  MappedBuffers mapped;
  for (std::uint64_t number = 1; number <= 2000; ++number) mapped.map(number, 4096, file);
  CHECK(mapped.at(1, 0, 4096) != nullptr);
  CHECK(mapped.at(2000, 0, 4096) == nullptr);
  mapped.unmap(1);
  mapped.map(2000, 4096, file);
  CHECK(mapped.at(2000, 0, 4096) != nullptr);
}

// Sparse files cost the one who has them nothing.
TEST("neighbour: who has great buffers mapped does not use up the addresses") {
  constexpr std::uint64_t kGreat = std::uint64_t{1} << 40;
  const FileDescriptor file(memfd_create("buffer", MFD_CLOEXEC));
  CHECK_EQ(ftruncate(file.get(), static_cast<off_t>(kGreat)), 0);
  MappedBuffers mapped;
  MappedBuffers of_another;
  std::uint64_t count = 0;
  for (std::uint64_t number = 1; number <= MappedBuffers::kMost; ++number) {
    MappedBuffers& whose = number % 2 == 0 ? mapped : of_another;
    whose.map(number, kGreat, file);
    if (whose.at(number, 0, 1) != nullptr) ++count;
  }
  CHECK(count < 64);
  const FileDescriptor small(memfd_create("buffer", MFD_CLOEXEC));
  CHECK_EQ(ftruncate(small.get(), 4096), 0);
  for (std::uint64_t number = 1; number <= 2 * count; ++number) {
    mapped.unmap(number);
    of_another.unmap(number);
  }
  mapped.map(1000, 4096, small);
  CHECK(mapped.at(1000, 0, 4096) != nullptr);
}

// Of a file with huge pages a part is mapped as more than that, and not unmapped.
TEST("neighbour: a part of a file is no buffer") {
  const FileDescriptor file(memfd_create("buffer", MFD_CLOEXEC));
  CHECK_EQ(ftruncate(file.get(), 8192), 0);
  MappedBuffers mapped;
  mapped.map(1, 4096, file);
  CHECK(mapped.at(1, 0, 1) == nullptr);
  mapped.map(1, 8192, file);
  CHECK(mapped.at(1, 0, 8192) != nullptr);
}

// Such a one may have a file system that is a program, which reading would wait for.
TEST("neighbour: a file that is not memory is no buffer") {
  const FileDescriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  MappedBuffers mapped;
  mapped.map(1, 4096, file);
  CHECK(mapped.at(1, 0, 1) == nullptr);
}

// A child that is a neighbour, and hangs up when it is told so.
struct Child {
  explicit Child(const Gid& own, const Gid& host) {
    int down[2];
    int up[2];
    CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
    orders.reset(down[1]);
    reports.reset(up[0]);
    const FileDescriptor heard(down[0]);
    const FileDescriptor says(up[1]);
    pid = fork();
    if (pid != 0) return;
    alarm(60);
    Guest guest(own);
    guest.connect_to(host);
    guest.greet();
    CHECK_EQ(write(says.get(), "g", 1), 1);
    char order = 0;
    CHECK_EQ(read(heard.get(), &order, 1), 1);
    shutdown(guest.talk.get(), SHUT_RDWR);
    CHECK_EQ(write(says.get(), "h", 1), 1);
    for (;;) pause();
  }
  void await_report() {
    char report = 0;
    CHECK_EQ(read(reports.get(), &report, 1), 1);
  }
  void hang_up() {
    CHECK_EQ(write(orders.get(), "h", 1), 1);
    await_report();
  }
  void end() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid = -1;
  FileDescriptor orders;
  FileDescriptor reports;
};

// What tells of the end of the first is heard when its descriptor's number is the second one's.
TEST("neighbour: the end of one is not taken for the end of who came after it") {
  Side host(1);
  Child first(config_of(2).gids[0], host.gid());
  first.await_report();
  while (!host.neighbours->is_inhabited()) host.neighbours->serve();
  Guest second(config_of(3).gids[0]);
  second.connect_to(host.gid());
  host.neighbours->serve();
  first.hang_up();
  second.greet();
  first.end();
  host.neighbours->serve();
  CHECK_EQ(host.neighbours->count(), 1u);
  NeighbourMessage answer;
  std::vector<FileDescriptor> fds;
  CHECK_EQ(receive_message(second.talk.get(), answer, fds), 0);
  CHECK(answer.kind == MessageKind::WELCOME);
  host.go();
}

// The child has copies of the descriptors that led to them, and may live long.
TEST("neighbour: those who have gone keep nobody awake whose process has forked meanwhile") {
  Side host(1);
  Child neighbour(config_of(2).gids[0], host.gid());
  neighbour.await_report();
  while (!host.neighbours->is_inhabited()) host.neighbours->serve();
  const FileDescriptor guest = local_socket();
  Name name = name_of(host.gid());
  CHECK_EQ(connect(guest.get(), name.get(), name.length), 0);
  host.neighbours->serve();
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  shutdown(guest.get(), SHUT_RDWR);
  neighbour.end();
  for (int times = 0; times < 100; ++times) host.neighbours->serve();
  const bool due = is_due(host);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(!host.neighbours->is_inhabited());
  CHECK(!due);
  host.go();
}

// A thread of the parent may have been in the middle of anything, and none of it goes on.
TEST("neighbour: a child of fork() can leave neighbours that come and go") {
  Side host(1);
  std::atomic<bool> stop{false};
  std::thread others([&] {
    std::uint32_t number = 0;
    while (!stop.load()) {
      std::vector<std::unique_ptr<Guest>> guests;
      for (int times = 0; times < 4; ++times, ++number) {
        // An address is taken for as long as a child has a copy of what listens there.
        const auto high = static_cast<std::uint8_t>(number >> 8);
        const Gid own = own_address(static_cast<std::uint8_t>(number), 0xfc, high);
        guests.push_back(std::make_unique<Guest>(own));
        guests.back()->connect_to(host.gid());
        guests.back()->greet();
      }
      while (host.neighbours->count() < guests.size()) host.neighbours->serve();
      guests.clear();
      while (host.neighbours->is_inhabited()) host.neighbours->serve();
    }
  });
  int status = 0;
  for (int forks = 0; forks < 300 && status == 0; ++forks) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      host.neighbours->abandon();
      _exit(0);
    }
    waitpid(child, &status, 0);
  }
  stop.store(true);
  others.join();
  CHECK_EQ(status, 0);
  host.go();
}

}  // namespace
}  // namespace softhca::testing
