// The pipe that the events of a completion channel go through.

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "tests/check.hpp"
#include "uabi/event_pipe.hpp"

namespace softhca::testing {
namespace {

TEST("uabi events: a pipe is as large as any until it is full, and then grows") {
  std::array<int, 2> ends{};
  CHECK_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const int usual = fcntl(ends[1], F_GETPIPE_SZ);
  EventPipe pipe(ends[1]);
  CHECK_EQ(pipe.error(), 0);
  CHECK_EQ(fcntl(ends[1], F_GETPIPE_SZ), usual);

  const auto events = static_cast<std::uint64_t>(usual) / sizeof(std::uint64_t) + 1;
  for (std::uint64_t event = 0; event < events; ++event) pipe.write(event);
  CHECK(fcntl(ends[1], F_GETPIPE_SZ) > usual);
  std::uint64_t read_events = 0;
  std::uint64_t event = 0;
  while (read(ends[0], &event, sizeof event) == sizeof event) CHECK_EQ(event, read_events++);
  CHECK_EQ(read_events, events);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace softhca::testing
