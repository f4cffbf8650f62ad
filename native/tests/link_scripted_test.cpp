#include <memory>
#include <vector>

#include "link/scripted_link.hpp"
#include "tests/check.hpp"
#include "wire/packet.hpp"

namespace softhca {
namespace {

// Takes all that is sent.
class Sink final : public Link {
 public:
  explicit Sink(std::vector<std::uint8_t>& sent) : sent_(sent) {}
  std::size_t send(std::span<const Datagram> datagrams) override {
    for (const Datagram& datagram : datagrams) sent_.push_back(datagram.bytes[11]);
    return datagrams.size();
  }
  std::size_t receive(std::span<Datagram>) override { return 0; }
  LinkError join_group(const Gid&) override { return {}; }
  LinkError leave_group(const Gid&) override { return {}; }

 private:
  std::vector<std::uint8_t>& sent_;  // PSNs.
};

// The first packet is late, and others overtake it.
struct Fixture {
  Fixture() {
    add(FaultAction::DELAY, 1000);
    add(FaultAction::REORDER, 0);
    link.pass_time(1);
  }
  void add(FaultAction action, std::uint64_t delay_ns) {
    FaultRule rule;
    rule.action = action;
    rule.delay_ns = delay_ns;
    rule.nth = {1};
    faults->rules.add(std::move(rule));
  }
  void send(std::uint8_t psn) {
    std::vector<std::uint8_t> packet(kBthBytes + kIcrcBytes);
    packet[11] = psn;
    const Datagram datagram{Route{}, packet};
    link.send({&datagram, 1});
  }

  std::vector<std::uint8_t> sent;
  std::shared_ptr<SharedFaults> faults = std::make_shared<SharedFaults>();
  ScriptedLink link{std::make_unique<Sink>(sent), faults,
                    [](std::uint32_t, Addressee&) { return false; }};
};

using Psns = std::vector<std::uint8_t>;

TEST("scripted link: what others have overtaken is late besides, if a rule says so") {
  Fixture fixture;
  fixture.send(1);
  fixture.send(2);
  CHECK(fixture.sent == Psns({2}));
  CHECK_EQ(fixture.link.pass_time(500), 1001u);
  fixture.send(3);
  CHECK(fixture.sent == Psns({2, 3}));
  fixture.link.pass_time(1001);
  fixture.link.send({});
  CHECK(fixture.sent == Psns({2, 3, 1}));
}

TEST("scripted link: so is what nothing has overtaken") {
  Fixture fixture;
  fixture.send(1);
  CHECK(fixture.link.holding());
  fixture.link.release();
  CHECK(!fixture.link.holding());
  CHECK(fixture.sent.empty());
  CHECK_EQ(fixture.link.pass_time(2), 1001u);
}

}  // namespace
}  // namespace softhca
