#include "fabric/topology.hpp"

#include <deque>

namespace softhca {

std::uint32_t Topology::add_node() {
  leaving_.emplace_back();
  ways_.clear();
  return static_cast<std::uint32_t>(leaving_.size() - 1);
}

std::uint32_t Topology::connect(std::uint32_t a, std::uint32_t b, const LinkShape& shape) {
  const auto link = static_cast<std::uint32_t>(links.size());
  const std::uint64_t pace =
      shape.bits_per_second == 0 ? 0 : 8'000'000'000'000 / shape.bits_per_second;
  links.push_back({shape, pace, true});
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    leaving_[from].push_back(static_cast<std::uint32_t>(lanes.size()));
    Lane lane;
    lane.from = from;
    lane.to = to;
    lane.link = link;
    lanes.push_back(lane);
  }
  ways_.clear();
  return link;
}

void Topology::find_ways(std::uint32_t target) {
  constexpr std::uint32_t kFar = ~std::uint32_t{0};
  std::vector<std::uint32_t> steps(node_count(), kFar);
  steps[target] = 0;
  std::deque<std::uint32_t> next{target};
  while (!next.empty()) {
    const std::uint32_t node = next.front();
    next.pop_front();
    for (const std::uint32_t out : leaving_[node]) {
      const std::uint32_t other = lanes[out].to;
      if (!links[lanes[out].link].up || steps[other] != kFar) continue;
      steps[other] = steps[node] + 1;
      next.push_back(other);
    }
  }
  auto& ways = ways_[target];
  ways.assign(node_count(), {});
  for (std::uint32_t lane = 0; lane < lanes.size(); ++lane) {
    const Lane& way = lanes[lane];
    if (!links[way.link].up || steps[way.to] == kFar) continue;
    if (steps[way.from] == steps[way.to] + 1) ways[way.from].push_back(lane);
  }
}

std::uint32_t Topology::next_lane(std::uint32_t node, std::uint32_t target, const Route& route) {
  if (ways_.empty()) ways_.resize(node_count());
  if (ways_[target].empty()) find_ways(target);
  const auto& ways = ways_[target][node];
  if (ways.empty()) return kNone;
  if (ways.size() == 1) return ways[0];
  const std::uint64_t flow = std::uint64_t{route.udp_source_port} << 32 |
                             route.source.raw[15] << 8 | route.destination.raw[15];
  return ways[Random(flow).below(ways.size())];
}

}  // namespace softhca
