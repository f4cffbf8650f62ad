// Hosts, switches and links, and which way packets go.
#pragma once

#include <cstdint>
#include <vector>

#include "vocabulary/random.hpp"
#include "vocabulary/route.hpp"

namespace softhca {

struct LinkShape {
  std::uint64_t bits_per_second = 100'000'000'000;  // 0: no limit.
  std::uint64_t latency_ns = 1000;
  std::uint64_t queue_bytes = 0;   // In front of it, at a switch; 0: no limit.
  std::uint32_t mtu_bytes = 4096;  // Of payload, as path MTUs count.
  // Congestion marks: none below the first mark, at most `mark_probability` of packets up to the
  // second, all beyond it. 0: none.
  std::uint64_t mark_from_bytes = 0;
  std::uint64_t mark_all_bytes = 0;
  double mark_probability = 1;
};

// One direction of a link.
struct Lane {
  std::uint32_t from = 0;  // Nodes.
  std::uint32_t to = 0;
  std::uint32_t link = 0;
  std::uint64_t free_at_ns = 0;  // The last bit of all that was handed to it has left by then.
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::uint64_t overflows = 0;
  std::uint64_t marked = 0;
  std::uint64_t most_queued_bytes = 0;
};

struct FabricLink {
  LinkShape shape;
  std::uint64_t picoseconds_per_byte = 0;
  bool up = true;
};

class Topology {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::uint32_t add_node();
  // Two lanes: number 2n goes from `a` to `b`, and 2n + 1 back.
  std::uint32_t connect(std::uint32_t a, std::uint32_t b, const LinkShape& shape);
  // The lane that a packet takes next; kNone without a way. Of several ways of the same length a
  // flow keeps to one.
  std::uint32_t next_lane(std::uint32_t node, std::uint32_t target, const Route& route);

  std::vector<FabricLink> links;
  std::vector<Lane> lanes;
  // What waits for a lane, as far as its link has a bandwidth.
  std::uint64_t queued_bytes(const Lane& lane, std::uint64_t now_ns) const {
    const std::uint64_t pace = links[lane.link].picoseconds_per_byte;
    const std::uint64_t waits_ns = lane.free_at_ns > now_ns ? lane.free_at_ns - now_ns : 0;
    return pace == 0 ? 0 : waits_ns * 1000 / pace;
  }
  std::size_t node_count() const { return leaving_.size(); }
  void forget_ways() { ways_.clear(); }

 private:
  void find_ways(std::uint32_t target);

  std::vector<std::vector<std::uint32_t>> leaving_;  // Lanes by node.
  // By target, then by node: lanes that lead there in the fewest steps.
  std::vector<std::vector<std::vector<std::uint32_t>>> ways_;
};

}  // namespace softhca
