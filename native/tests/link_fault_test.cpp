#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "link/fault_link.hpp"
#include "tests/check.hpp"

namespace softhca {
namespace {

using Bytes = std::vector<std::uint8_t>;

// A link whose other end is the test.
class ScriptedLink final : public Link {
 public:
  std::size_t send(std::span<const Datagram> datagrams) override {
    const std::size_t count = std::min(datagrams.size(), room);
    for (std::size_t i = 0; i < count; ++i) {
      sent.emplace_back(datagrams[i].bytes.begin(), datagrams[i].bytes.end());
    }
    room -= count;
    return count;
  }
  std::size_t receive(std::span<Datagram> datagrams) override {
    lent.clear();
    const std::size_t count = std::min(datagrams.size(), arriving.size());
    for (std::size_t i = 0; i < count; ++i) lent.push_back(std::move(arriving[i]));
    arriving.erase(arriving.begin(), arriving.begin() + static_cast<std::ptrdiff_t>(count));
    for (std::size_t i = 0; i < count; ++i) datagrams[i] = {Route{}, lent[i]};
    return count;
  }
  LinkError join_group(const Gid&) override { return {}; }
  LinkError leave_group(const Gid&) override { return {}; }

  std::size_t room = ~std::size_t{0};
  std::vector<Bytes> sent;
  std::vector<Bytes> arriving;
  std::vector<Bytes> lent;
};

struct Fixture {
  explicit Fixture(const FaultSettings& settings) {
    auto inner = std::make_unique<ScriptedLink>();
    scripted = inner.get();
    link = std::make_unique<FaultLink>(std::move(inner), settings);
  }

  ScriptedLink* scripted;
  std::unique_ptr<FaultLink> link;
};

Bytes numbered(std::uint32_t number) {
  Bytes bytes(64, 0);
  store_be32(bytes.data(), number);
  return bytes;
}

std::size_t send_numbers(FaultLink& link, std::uint32_t first, std::uint32_t count) {
  std::vector<Bytes> owned;
  std::vector<Datagram> datagrams;
  for (std::uint32_t i = 0; i < count; ++i) owned.push_back(numbered(first + i));
  for (const Bytes& bytes : owned) datagrams.push_back({Route{}, bytes});
  return link.send(datagrams);
}

FaultSettings sending(FaultRates rates, std::uint64_t seed = 1) {
  FaultSettings settings;
  settings.send = rates;
  settings.seed = seed;
  return settings;
}

// 20000 draws at 10 %: six standard deviations are 255.
bool near_tenth(std::uint64_t count) { return count > 1745 && count < 2255; }

TEST("link fault: rates hold, each on its own") {
  Fixture all(sending({.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.1}));
  for (std::uint32_t i = 0; i < 20000; i += 50) send_numbers(*all.link, i, 50);
  const FaultCounters& counters = all.link->send_counters();
  CHECK_EQ(counters.passed, std::uint64_t{20000});
  CHECK(near_tenth(counters.dropped));
  // The others do not happen to what was dropped: 10 % of 90 %.
  CHECK(counters.duplicated > 1550 && counters.duplicated < 2050);
  CHECK(counters.reordered > 1550 && counters.reordered < 2050);
  CHECK(counters.corrupted > 1550 && counters.corrupted < 2050);
  all.link->release();
  CHECK_EQ(all.scripted->sent.size(), 20000 - counters.dropped + counters.duplicated);
}

TEST("link fault: the same seed does the same, another one does not") {
  const FaultRates rates{.drop = 0.2, .duplicate = 0.2, .reorder = 0.2, .corrupt = 0.2};
  Fixture first(sending(rates, 42)), second(sending(rates, 42)), third(sending(rates, 43));
  for (Fixture* fixture : {&first, &second, &third}) {
    for (std::uint32_t i = 0; i < 1000; i += 10) send_numbers(*fixture->link, i, 10);
  }
  CHECK(first.scripted->sent == second.scripted->sent);
  CHECK(first.scripted->sent != third.scripted->sent);
}

TEST("link fault: corruption flips one bit, anywhere") {
  Fixture fixture(sending({.corrupt = 1}));
  std::vector<bool> seen(64 * 8, false);
  for (std::uint32_t i = 0; i < 10000; ++i) send_numbers(*fixture.link, i, 1);
  for (std::uint32_t i = 0; i < 10000; ++i) {
    const Bytes expected = numbered(i);
    int flipped = 0;
    for (std::size_t at = 0; at < expected.size(); ++at) {
      const auto difference =
          static_cast<std::uint8_t>(expected[at] ^ fixture.scripted->sent[i][at]);
      flipped += std::popcount(difference);
      if (difference != 0)
        seen[at * 8 + static_cast<std::size_t>(std::countr_zero(difference))] = true;
    }
    CHECK_EQ(flipped, 1);
  }
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}

TEST("link fault: reordered datagrams are overtaken by one to four others, and never lost") {
  Fixture fixture(sending({.reorder = 0.3}));
  for (std::uint32_t i = 0; i < 2000; i += 20) send_numbers(*fixture.link, i, 20);
  fixture.link->release();
  CHECK(!fixture.link->holding());
  std::vector<bool> seen(2000, false);
  std::uint32_t highest = 0;
  std::uint64_t late = 0;
  for (const Bytes& bytes : fixture.scripted->sent) {
    const std::uint32_t number = load_be32(bytes.data());
    CHECK(!seen[number]);
    seen[number] = true;
    if (number < highest) ++late;
    highest = std::max(highest, number);
  }
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
  CHECK(late > 300);
}

TEST("link fault: what is held back is let go on demand") {
  Fixture fixture(sending({.reorder = 1}));
  CHECK_EQ(send_numbers(*fixture.link, 0, 3), std::size_t{3});
  CHECK(fixture.link->holding());
  CHECK(fixture.scripted->sent.empty());
  fixture.link->release();
  CHECK_EQ(fixture.scripted->sent.size(), std::size_t{3});
}

TEST("link fault: a blocked link keeps each datagram's fate and loses none") {
  Fixture fixture(sending({.duplicate = 0.5}, 5)), free(sending({.duplicate = 0.5}, 5));
  fixture.scripted->room = 3;
  CHECK_EQ(send_numbers(*fixture.link, 0, 10), std::size_t{10});
  CHECK(fixture.link->blocked());
  CHECK_EQ(send_numbers(*fixture.link, 10, 10), std::size_t{0});
  fixture.scripted->room = ~std::size_t{0};
  CHECK_EQ(send_numbers(*fixture.link, 10, 10), std::size_t{10});
  CHECK(!fixture.link->blocked());
  send_numbers(*free.link, 0, 20);
  CHECK(fixture.scripted->sent == free.scripted->sent);
}

TEST("link fault: receiving has faults of its own, and room for the doubled") {
  FaultSettings settings;
  settings.receive = {.duplicate = 1};
  Fixture fixture(settings);
  for (std::uint32_t i = 0; i < 100; ++i) fixture.scripted->arriving.push_back(numbered(i));
  std::vector<std::uint32_t> numbers;
  std::array<Datagram, kLinkBatch> batch;
  while (const std::size_t count = fixture.link->receive(batch)) {
    for (std::size_t i = 0; i < count; ++i) numbers.push_back(load_be32(batch[i].bytes.data()));
  }
  CHECK_EQ(numbers.size(), std::size_t{200});
  for (std::size_t i = 0; i < numbers.size(); ++i) CHECK_EQ(numbers[i], i / 2);
  CHECK_EQ(fixture.link->receive_counters().duplicated, std::uint64_t{100});
  CHECK_EQ(fixture.link->send_counters().passed, std::uint64_t{0});
}

}  // namespace
}  // namespace softhca
