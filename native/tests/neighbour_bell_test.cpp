// A peer whose bell is none. It is rung under the adapter's lock, so that one that waits, or kills
// who writes to it, would stop the whole device.
#include <fcntl.h>
#include <sys/eventfd.h>

#include <vector>

#include "tests/neighbour_guest.hpp"
#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

// Whether a guest with this bell is made a neighbour.
bool guest_is_welcome(int bell) {
  Side host(1);
  Guest guest(config_of(2).gids[0]);
  guest.bell.reset(fcntl(bell, F_DUPFD_CLOEXEC, 0));
  guest.connect_to(host.gid());
  guest.greet();
  host.neighbours->serve();  // Lets it in.
  host.neighbours->serve();  // Hears it.
  wait_for(guest.talk.get());
  NeighbourMessage answer;
  std::vector<FileDescriptor> fds;
  const int error = receive_message(guest.talk.get(), answer, fds);
  CHECK(error == 0 || error == ECONNRESET);
  CHECK_EQ(host.neighbours->is_inhabited(), error == 0);
  host.go();
  return error == 0;
}

// Whether who answers a greeting with this bell is.
bool answer_is_welcome(int bell) {
  Side guest(1);
  const Gid own = config_of(2).gids[0];
  const FileDescriptor listener = local_socket();
  Name name = name_of(own);
  CHECK_EQ(bind(listener.get(), name.get(), name.length), 0);
  CHECK_EQ(listen(listener.get(), 1), 0);
  std::thread host([&] {
    const FileDescriptor asked(accept(listener.get(), nullptr, nullptr));
    wait_for(asked.get());
    NeighbourMessage hello;
    std::vector<FileDescriptor> fds;
    CHECK_EQ(receive_message(asked.get(), hello, fds), 0);
    CHECK_EQ(send_message(asked.get(), card(MessageKind::WELCOME, own), {bell}), 0);
    wait_for(asked.get());  // It agrees, or goes.
  });
  guest.neighbours->meet(own, kPatienceMs);
  const bool welcome = guest.neighbours->is_inhabited();
  guest.go();
  host.join();
  return welcome;
}

TEST("neighbour: a bell that could stop who rings it is no bell") {
  const FileDescriptor bell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  CHECK(guest_is_welcome(bell.get()) && answer_is_welcome(bell.get()));
  int ends[2];
  CHECK_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const FileDescriptor reader(ends[0]), writer(ends[1]);
  const FileDescriptor waits(eventfd(0, EFD_CLOEXEC));
  const FileDescriptor device(open("/dev/null", O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  const FileDescriptor talks = local_socket();
  for (const FileDescriptor* other : {&reader, &writer, &waits, &device, &talks}) {
    CHECK(!guest_is_welcome(other->get()));
    CHECK(!answer_is_welcome(other->get()));
  }
}

}  // namespace
}  // namespace softhca::testing
