// How long a thread looks out before it sleeps.

#include "tests/check.hpp"
#include "uabi/lookout.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST("uabi lookout: it begins with none, grows while calls come soon, and shrinks to nothing") {
  Lookout lookout(Lookout::kMostNs);
  std::uint64_t now = kMs;
  lookout.found(now);
  CHECK(!lookout.goes_on(now));
  for (const std::uint64_t limit :
       {10'000u, 20'000u, 40'000u, 80'000u, 160'000u, 200'000u, 200'000u}) {
    now += 150'000;
    lookout.woken(now);
    lookout.found(now);
    CHECK_EQ(lookout.limit_ns(), limit);
  }
  for (const std::uint64_t limit : {100'000u, 50'000u, 25'000u, 12'500u, 0u, 0u}) {
    now += kMs;
    lookout.woken(now);
    lookout.found(now);
    CHECK_EQ(lookout.limit_ns(), limit);
  }
}

TEST("uabi lookout: it ends with its time, and never begins where there is none") {
  Lookout lookout(Lookout::kMostNs);
  std::uint64_t now = kMs;
  lookout.found(now);
  for (int call = 0; call < 10; ++call) {
    now += 1'000;
    lookout.woken(now);
    lookout.found(now);
  }
  CHECK(!lookout.goes_on(now + Lookout::kMostNs));
  Lookout none(0);
  none.found(now);
  none.woken(now + 1);
  CHECK_EQ(none.limit_ns(), 0u);
  CHECK(!none.goes_on(now + 1));
}

bool is_free = true;
int times_asked = 0;
bool free_or_not() {
  ++times_asked;
  return is_free;
}

// A lookout whose calls come soon, at `now`.
Lookout busy_lookout(std::uint64_t& now) {
  Lookout lookout(Lookout::kMostNs, free_or_not);
  lookout.found(now);
  for (int call = 0; call < 10; ++call) {
    now += 1'000;
    lookout.woken(now);
    lookout.found(now);
  }
  return lookout;
}

TEST("uabi lookout: without a free processor it waits for the reply to the call that woke it") {
  std::uint64_t now = kMs;
  Lookout lookout = busy_lookout(now);
  is_free = false;
  CHECK(lookout.goes_on(now + Lookout::kReplyNs - 1));
  CHECK(!lookout.goes_on(now + Lookout::kReplyNs));
  now += 1'000;
  lookout.found(now);  // The reply.
  CHECK(!lookout.goes_on(now));
  now += 10'000;
  lookout.woken(now);
  lookout.found(now);
  CHECK(lookout.goes_on(now));
}

TEST("uabi lookout: who else wants the processor is asked once in a while") {
  std::uint64_t now = kMs;
  Lookout lookout = busy_lookout(now);
  now += Lookout::kReplyNs;
  is_free = true;
  times_asked = 0;
  CHECK(lookout.goes_on(now));
  is_free = false;
  CHECK(lookout.goes_on(now + Lookout::kCheckNs - 1));
  CHECK_EQ(times_asked, 1);
  CHECK(!lookout.goes_on(now + Lookout::kCheckNs));
  lookout.found(now + Lookout::kCheckNs);
  CHECK(!lookout.goes_on(now + Lookout::kCheckNs + 1));
  CHECK_EQ(times_asked, 2);
  // Where somebody does, whoever is displaced waits for the answer too.
  is_free = true;
  now += Lookout::kCheckNs + Lookout::kCheckWantedNs;
  lookout.found(now - 1);
  CHECK(!lookout.goes_on(now - 1));
  CHECK_EQ(times_asked, 2);
  CHECK(lookout.goes_on(now));
  CHECK_EQ(times_asked, 3);
}

}  // namespace
}  // namespace softhca::testing
