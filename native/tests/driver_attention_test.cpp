// Whom a driver attends to while its owner polls and finds something each time.
#include <array>
#include <vector>

#include "tests/driver_hosts.hpp"

namespace softhca {
namespace {

using namespace testing;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kWrites = 21;
// Of messages to itself, while one write waits: seconds, where the thread looks every millisecond.
constexpr std::size_t kMostJoys = 4'000'000;

// `a` sends to itself and polls what came of it, each time with success, while `b` writes to it.
struct Contented {
  Bytes source = pattern(4096, 1), target = Bytes(source.size());
  DriverPair pair;
  std::uint32_t from, to;
  MrInfo source_mr = pair.b.reg(source), target_mr = pair.a.reg(target);

  explicit Contented(const OpenOptions& peer)
      : pair({}, peer), from(pair.a.create_qp()), to(pair.a.create_qp()) {
    pair.a.connect(from, pair.a.gid(), to);
    pair.a.connect(to, pair.a.gid(), from);
    for (int i = 0; i < 1000; ++i) enjoy();
  }

  void enjoy() {
    SendWr wr;
    wr.send_flags = kSendSignaled;
    CHECK(pair.a.recv(to, {}).ok());
    CHECK(pair.a.send(from, wr).ok());
    std::array<Completion, 1> out;
    for (int i = 0; i < 2; ++i) {
      CHECK_EQ(pair.a.driver().poll_cq(pair.a.cq, out).value, std::size_t{1});
    }
  }

  // The other end makes no progress by polling.
  void write() {
    const auto poll = [&](std::span<Completion> out) {
      return pair.b.call([&](Adapter& adapter) { return adapter.poll_cq(pair.b.cq, out); }).value;
    };
    CHECK(pair.b.send(pair.qp_b, rdma(WrOpcode::RDMA_WRITE, source, source_mr, target, target_mr))
              .ok());
    std::array<Completion, 1> out;
    out[0].status = WcStatus::GENERAL_ERR;
    for (std::size_t joys = 0; poll(out) == 0 && joys < kMostJoys; ++joys) enjoy();
    CHECK_EQ(out[0].status, WcStatus::SUCCESS);
  }
};

void keeps_nobody_waiting(const OpenOptions& peer) {
  Contented scene(peer);
  for (std::size_t i = 0; i < kWrites; ++i) scene.write();
  CHECK(scene.target == scene.source);
}

TEST("driver: an owner who finds something at each poll keeps no peer waiting") {
  OpenOptions far;
  far.shortcut = false;
  keeps_nobody_waiting(far);
}

TEST("driver: an owner who finds something at each poll keeps no neighbour waiting") {
  keeps_nobody_waiting({});
}

}  // namespace
}  // namespace softhca
