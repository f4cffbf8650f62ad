// Who has a driver's watch, step by step.
#include "driver/watch_duty.hpp"

#include <poll.h>

#include "driver/clock.hpp"
#include "tests/check.hpp"
#include "tests/patience.hpp"

namespace softhca {
namespace {

using namespace testing;
using Part = WatchDuty::Part;

// The thread is the test itself: it does what it is told, and no time passes that is not said.
struct Scene {
  WatchDuty duty;
  WatchDuty::Caller one, two;
  std::uint64_t now_ns = monotonic_ns();

  Scene() { CHECK_EQ(duty.open(), 0); }

  Part begin(WatchDuty::Caller& caller) { return duty.begin(caller, now_ns); }
  void end(WatchDuty::Caller& caller, bool more = false) { duty.end(caller, more, now_ns); }
  // `one` gets the watch from the thread.
  void lead() {
    CHECK_EQ(begin(one), Part::ASKED);
    duty.heed();
    CHECK(duty.leads(one));
  }
};

TEST("watch duty: the thread has it until a caller asks, and it hands it over") {
  Scene scene;
  CHECK(scene.duty.is_threads());
  scene.duty.heed();
  CHECK(scene.duty.is_threads());
  CHECK_EQ(scene.begin(scene.one), Part::ASKED);
  CHECK(scene.duty.is_threads());
  CHECK(!scene.duty.leads(scene.one));
  scene.duty.heed();
  CHECK(!scene.duty.is_threads());
  CHECK(scene.duty.leads(scene.one));
}

TEST("watch duty: a caller that comes back has it again without the thread") {
  Scene scene;
  scene.lead();
  for (int times = 0; times < 3; ++times) {
    scene.end(scene.one);
    CHECK(scene.duty.is_away());
    CHECK(!scene.duty.is_threads());
    CHECK_EQ(scene.begin(scene.one), Part::LEADS);
    CHECK(scene.duty.leads(scene.one));
    CHECK(!scene.duty.is_away());
  }
}

TEST("watch duty: of a caller that does not come back the thread takes it") {
  Scene scene;
  scene.lead();
  scene.end(scene.one);
  while (!scene.duty.rest()) {
  }
  CHECK(scene.duty.is_threads());
  CHECK(!scene.duty.is_away());
  CHECK_EQ(scene.begin(scene.two), Part::ASKED);
}

TEST("watch duty: a thread that wakes up leaves it to a caller that has come back") {
  Scene scene;
  scene.lead();
  scene.end(scene.one);
  CHECK_EQ(scene.begin(scene.one), Part::LEADS);
  CHECK(!scene.duty.rest());
  CHECK(scene.duty.leads(scene.one));
  CHECK(!scene.duty.is_threads());
}

TEST("watch duty: a second caller follows, and the thread takes it when the first has gone") {
  Scene scene;
  scene.lead();
  CHECK_EQ(scene.begin(scene.two), Part::FOLLOWS);
  scene.end(scene.one);
  CHECK(scene.duty.is_threads());
  CHECK(scene.duty.rest());
  CHECK(!scene.duty.leads(scene.two));
  // It keeps it for a while, however they come and go.
  scene.end(scene.two);
  CHECK_EQ(scene.begin(scene.one), Part::FOLLOWS);
  scene.end(scene.one);
  scene.now_ns += 10'000'000;
  CHECK_EQ(scene.begin(scene.one), Part::ASKED);
}

TEST("watch duty: who leaves with more to do leaves it to the thread, for a while") {
  Scene scene;
  scene.lead();
  scene.end(scene.one, true);
  CHECK(scene.duty.is_threads());
  CHECK(scene.duty.rest());
  CHECK_EQ(scene.begin(scene.one), Part::FOLLOWS);
  scene.end(scene.one);
  scene.now_ns += 10'000'000;
  CHECK_EQ(scene.begin(scene.one), Part::ASKED);
}

TEST("watch duty: a timer that ran when the thread took it runs anew for the next caller") {
  Scene scene;
  scene.lead();
  scene.end(scene.one);
  CHECK_EQ(scene.begin(scene.one), Part::LEADS);
  CHECK_EQ(scene.begin(scene.two), Part::FOLLOWS);
  scene.end(scene.one);
  CHECK(scene.duty.rest());
  scene.end(scene.two);
  scene.now_ns += 10'000'000;
  scene.lead();
  scene.end(scene.one);
  pollfd timer{scene.duty.timer_fd(), POLLIN, 0};
  CHECK_EQ(poll(&timer, 1, kPatienceMs), 1);
}

TEST("watch duty: who has gone before it was handed over does not get it") {
  Scene scene;
  CHECK_EQ(scene.begin(scene.one), Part::ASKED);
  scene.end(scene.one);
  scene.duty.heed();
  CHECK(scene.duty.is_threads());
  CHECK(!scene.duty.leads(scene.one));
  CHECK_EQ(scene.begin(scene.two), Part::ASKED);
  scene.duty.heed();
  CHECK(scene.duty.leads(scene.two));
  CHECK(!scene.duty.leads(scene.one));
}

TEST("watch duty: who has gone while it was handed over gives it back") {
  Scene scene;
  CHECK_EQ(scene.begin(scene.one), Part::ASKED);
  scene.duty.heed();
  scene.end(scene.one);
  CHECK(scene.duty.is_away());
  while (!scene.duty.rest()) {
  }
  CHECK(scene.duty.is_threads());
}

TEST("watch duty: once it is closed the thread has it, and no caller gets it") {
  Scene scene;
  scene.lead();
  scene.duty.close();
  CHECK(scene.duty.is_waited_on());
  CHECK(!scene.duty.rest());  // The caller is still there.
  scene.end(scene.one);
  CHECK(!scene.duty.is_waited_on());
  CHECK(scene.duty.rest());
  CHECK(scene.duty.is_threads());
  CHECK_EQ(scene.begin(scene.one), Part::FOLLOWS);
  scene.duty.heed();
  CHECK(scene.duty.is_threads());
}

}  // namespace
}  // namespace softhca
