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

}  // namespace
}  // namespace softhca::testing
