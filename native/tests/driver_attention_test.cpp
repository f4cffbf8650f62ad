// Whom a driver attends to while its owner polls and finds something each time.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/driver_hosts.hpp"

namespace softhca {
namespace {

using namespace testing;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kWrites = 21;
// The thread looks every millisecond. On a crowded machine single looks may be late.
constexpr std::uint64_t kLateNs = 5'000'000;

// `a` sends to itself and polls what came of it, each time with success, while `b` writes to it.
struct Contented {
  DriverPair pair;
  std::uint32_t from, to;
  Bytes source = pattern(4096, 1), target = Bytes(source.size());
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

  // How long it takes, where the other end makes no progress by polling.
  std::uint64_t write_ns() {
    const auto poll = [&](std::span<Completion> out) {
      return pair.b.call([&](Adapter& adapter) { return adapter.poll_cq(pair.b.cq, out); }).value;
    };
    const std::uint64_t since_ns = monotonic_ns();
    CHECK(pair.b.send(pair.qp_b, rdma(WrOpcode::RDMA_WRITE, source, source_mr, target, target_mr))
              .ok());
    std::array<Completion, 1> out;
    out[0].status = WcStatus::GENERAL_ERR;
    while (poll(out) == 0 && monotonic_ns() - since_ns < kPatienceNs) enjoy();
    CHECK_EQ(out[0].status, WcStatus::SUCCESS);
    return monotonic_ns() - since_ns;
  }
};

void keeps_nobody_waiting(const OpenOptions& peer) {
  Contented scene(peer);
  std::array<std::uint64_t, kWrites> took_ns;
  for (std::uint64_t& one : took_ns) one = scene.write_ns();
  std::ranges::nth_element(took_ns, took_ns.begin() + kWrites / 2);
  CHECK(took_ns[kWrites / 2] < kLateNs);
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
