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

// `a` polls and finds something each time, while `b` writes to it.
struct Contented {
  Bytes source = pattern(4096, 1), target = Bytes(source.size());
  DriverPair pair;
  MrInfo source_mr = pair.b.reg(source), target_mr = pair.a.reg(target);

  explicit Contented(const OpenOptions& peer) : pair({}, peer) {}
  virtual ~Contented() = default;
  virtual void enjoy() = 0;

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

// It sends to itself, and polls what came of it.
struct ByItself final : Contented {
  std::uint32_t from, to;

  explicit ByItself(const OpenOptions& peer)
      : Contented(peer), from(pair.a.create_qp()), to(pair.a.create_qp()) {
    pair.a.connect(from, pair.a.gid(), to);
    pair.a.connect(to, pair.a.gid(), from);
  }
  void enjoy() override {
    SendWr wr;
    wr.send_flags = kSendSignaled;
    CHECK(pair.a.recv(to, {}).ok());
    CHECK(pair.a.send(from, wr).ok());
    std::array<Completion, 1> out;
    for (int i = 0; i < 2; ++i) {
      CHECK_EQ(pair.a.driver().poll_cq(pair.a.cq, out).value, std::size_t{1});
    }
  }
};

// A neighbour sends to it, and it fetches that.
struct ByNeighbour final : Contented {
  DriverHost neighbour;
  std::uint32_t from, to;

  explicit ByNeighbour(const OpenOptions& peer)
      : Contented(peer), from(neighbour.create_qp()), to(pair.a.create_qp()) {
    neighbour.driver().meet(pair.a.gid(), kPatienceMs);
    neighbour.connect(from, pair.a.gid(), to);
    pair.a.driver().meet(neighbour.gid(), kPatienceMs);
    pair.a.connect(to, neighbour.gid(), from);
  }
  void enjoy() override {
    SendWr wr;
    wr.send_flags = kSendSignaled;
    CHECK(pair.a.recv(to, {}).ok());
    CHECK(neighbour.send(from, wr).ok());
    std::array<Completion, 1> out;
    CHECK_EQ(pair.a.driver().poll_cq(pair.a.cq, out).value, std::size_t{1});
    CHECK_EQ(neighbour.wait().status, WcStatus::SUCCESS);
  }
};

template <class Scene>
void keeps_nobody_waiting(const OpenOptions& peer) {
  Scene scene(peer);
  for (int i = 0; i < 1000; ++i) scene.enjoy();
  for (std::size_t i = 0; i < kWrites; ++i) scene.write();
  CHECK(scene.target == scene.source);
}

TEST("driver: an owner who finds something at each poll keeps no peer waiting") {
  OpenOptions far;
  far.shortcut = false;
  keeps_nobody_waiting<ByItself>(far);
}

TEST("driver: an owner who fetches from a neighbour at each poll keeps no peer waiting") {
  OpenOptions far;
  far.shortcut = false;
  keeps_nobody_waiting<ByNeighbour>(far);
}

TEST("driver: an owner who finds something at each poll keeps no neighbour waiting") {
  keeps_nobody_waiting<ByItself>({});
}

}  // namespace
}  // namespace softhca
