// Who sleeps is woken, whoever else hears the message that wakes.
#include <poll.h>

#include <mutex>

#include "tests/neighbour_guest.hpp"
#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

bool is_due(const Side& side) {
  pollfd ready{side.neighbours->ready_fd(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

void welcome(Side& host, Guest& guest) {
  guest.connect_to(host.gid());
  guest.greet();
  host.neighbours->serve();  // Lets it in.
  host.neighbours->serve();  // Hears it.
  CHECK(host.neighbours->is_inhabited());
}

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

}  // namespace
}  // namespace softhca::testing
