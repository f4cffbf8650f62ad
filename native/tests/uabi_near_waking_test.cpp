// When tasks and those who answer them are woken on one processor.

#include <vector>

#include "tests/check.hpp"
#include "uabi/near_waking.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint64_t kStart = 5'000'000'000;
constexpr std::uint64_t kDisplaced = NearWaking::kDisplacedNs;
constexpr std::uint64_t kPause = NearWaking::kPauseNs;

TEST("uabi near waking: the kernel is told once") {
  std::vector<bool> told;
  NearWaking waking([&](bool near) {
    told.push_back(near);
    return true;
  });
  for (std::uint64_t now = kStart; now < kStart + 10; ++now) CHECK(waking.settle(now));
  CHECK(told == std::vector<bool>{true});
}

TEST("uabi near waking: a kernel that does not know it is not asked again") {
  int asked = 0;
  NearWaking waking([&](bool) {
    ++asked;
    return false;
  });
  for (std::uint64_t now = kStart; now < kStart + 10; ++now) CHECK(!waking.settle(now));
  CHECK_EQ(asked, 1);
}

TEST("uabi near waking: who was displaced by an answer leaves it for a while, and tries again") {
  std::vector<bool> told;
  NearWaking waking([&](bool near) {
    told.push_back(near);
    return true;
  });
  std::uint64_t now = kStart;
  CHECK(waking.settle(now));
  waking.answered(now, now + kDisplaced - 1);
  now += kDisplaced;
  CHECK(waking.settle(now));
  waking.answered(now, now + kDisplaced);
  now += kDisplaced;
  CHECK(!waking.settle(now));
  waking.answered(now, now + 1'000);
  CHECK(!waking.settle(now + kPause - 1));
  CHECK(waking.settle(now + kPause));
  CHECK((told == std::vector<bool>{true, false, true}));
}

}  // namespace
}  // namespace softhca::testing
