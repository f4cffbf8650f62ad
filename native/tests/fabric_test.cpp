// Two adapters on a fabric: faults, queues, time, and the same trace for the same seed.
#include "fabric/fabric.hpp"

#include <array>
#include <cstdint>
#include <vector>

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"

namespace softhca::testing {
namespace {

// The hosts of a Pair, moved by a fabric instead.
struct Scene {
  explicit Scene(std::uint64_t seed, const LinkShape& shape = {})
      : pair(seed), clock(std::make_shared<VirtualClock>()) {
    FabricSettings settings;
    settings.seed = seed;
    settings.link = shape;
    fabric = std::make_unique<Fabric>(settings, clock);
    for (std::size_t i = 0; i < 2; ++i) {
      FabricPort port;
      port.adapter = (i == 0 ? pair.a : pair.b).adapter.get();
      port.mutex = &mutexes[i];
      port.touched = &touched[i];
      port.closed = &closed;
      port.notify = [](Adapter&) {};
      fabric->add_host(std::move(port));
    }
    a = pair.a.qp();
    b = pair.b.qp();
    CHECK(pair.connect(true, a, QpType::RC, b, 100, 200).ok());
    CHECK(pair.connect(false, b, QpType::RC, a, 200, 100).ok());
    near.assign(20'000, 0);
    far.assign(20'000, 0);
    for (std::size_t i = 0; i < near.size(); ++i) near[i] = static_cast<std::uint8_t>(i * 7);
    near_mr = pair.a.reg(near);
    far_mr = pair.b.reg(far);
  }

  void write(std::uint32_t length) {
    SendWr wr;
    wr.opcode = WrOpcode::RDMA_WRITE;
    wr.send_flags = kSendSignaled;
    wr.sges = {{reinterpret_cast<std::uint64_t>(near.data()), length, near_mr.lkey}};
    wr.remote_address = reinterpret_cast<std::uint64_t>(far.data());
    wr.rkey = far_mr.rkey;
    const SendWr* list[] = {&wr};
    std::size_t posted = 0;
    CHECK(pair.a.adapter->post_send(a, list, posted, clock->now_ns).ok());
    touched[0] = true;
  }

  Pair pair;
  std::shared_ptr<VirtualClock> clock;
  std::array<ShortMutex, 2> mutexes;
  std::array<bool, 2> touched{};
  bool closed = false;
  std::unique_ptr<Fabric> fabric;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::vector<std::uint8_t> near;
  std::vector<std::uint8_t> far;
  MrInfo near_mr;
  MrInfo far_mr;
};

TEST("fabric: packets take as long as their links") {
  Scene scene(1, {.bits_per_second = 1'000'000'000, .latency_ns = 10'000});
  scene.write(1000);
  CHECK(scene.fabric->run(kNever, true, 1000) == Fabric::Stop::NOTICE);
  // 1000 bytes with their headers at 1 Gb/s are eight to nine microseconds; then there and back.
  CHECK(scene.fabric->now_ns() > 28'000);
  CHECK(scene.fabric->now_ns() < 31'000);
  CHECK(scene.near[500] == scene.far[500]);
  CHECK_EQ(scene.fabric->counters().packets, 2u);
}

TEST("fabric: whatever the network does, a transfer ends, the same way each time") {
  const auto run = [](std::uint64_t seed) {
    Scene scene(seed, {.bits_per_second = 10'000'000'000, .latency_ns = 500, .queue_bytes = 9000});
    for (const FaultAction action :
         {FaultAction::DROP, FaultAction::DUPLICATE, FaultAction::REORDER, FaultAction::CORRUPT,
          FaultAction::DELAY}) {
      FaultRule rule;
      rule.action = action;
      rule.probability = 0.05;
      rule.seed = seed;
      rule.delay_ns = 100;
      rule.most_delay_ns = 10'000;
      rule.count = 3;
      scene.fabric->faults().add(rule);
    }
    scene.write(20'000);
    std::vector<Completion> done;
    while (done.empty()) {
      const Fabric::Stop stop = scene.fabric->run(kNever, true, 1'000'000);
      CHECK(stop == Fabric::Stop::NOTICE);
      done = scene.pair.a.poll();
    }
    CHECK(done[0].status == WcStatus::SUCCESS);
    CHECK(scene.near == scene.far);
    return scene.fabric->counters().packets;
  };
  for (std::uint64_t i = 0; i < 20; ++i) CHECK_EQ(run(seed() + i), run(seed() + i));
}

TEST("fabric: a rule strikes what it names and nothing else") {
  Scene scene(3);
  FaultRule rule;
  rule.match.opcodes.reset();
  rule.match.opcodes.set(make_opcode(OpcodeTransport::RC, Operation::ACKNOWLEDGE));
  rule.nth = {2};
  const std::uint32_t number = scene.fabric->faults().add(rule);
  for (int i = 0; i < 4; ++i) {
    scene.write(10);
    CHECK(scene.fabric->run(kNever, true, 1'000'000) == Fabric::Stop::NOTICE);
    CHECK_EQ(scene.pair.a.poll().size(), 1u);
  }
  CHECK_EQ(scene.fabric->faults().tally(number).struck, 1u);
  CHECK_EQ(scene.fabric->faults().strikes(number).front(), 2u);
}

TEST("fabric: it is quiet when nothing is left, and time stops where it was told to") {
  Scene scene(4);
  CHECK(scene.fabric->run(kNever, true, 1000) == Fabric::Stop::QUIET);
  CHECK(scene.fabric->run(5000, true, 1000) == Fabric::Stop::QUIET);
  CHECK_EQ(scene.fabric->now_ns(), 5000u);
  scene.fabric->call_at(7000, 42);
  CHECK(scene.fabric->run(6000, true, 1000) == Fabric::Stop::TIME);
  CHECK_EQ(scene.fabric->now_ns(), 6000u);
  CHECK(scene.fabric->run(kNever, true, 1000) == Fabric::Stop::CALL);
  CHECK_EQ(scene.fabric->called(), 42u);
}

}  // namespace
}  // namespace softhca::testing
