// The adapter under attack: one queue pair of each service type, connected to a peer that is the
// fuzzer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "adapter/adapter.hpp"
#include "fuzz/arena.hpp"
#include "transport/local_path.hpp"
#include "vocabulary/random.hpp"

namespace softhca::fuzz {

struct Key {
  std::uint32_t rkey;
  std::uint64_t address;
  std::uint32_t length;
};

struct Line {
  QpType type;
  std::uint32_t qpn = 0;
  std::uint32_t peer_qpn = 0;
};

class Victim {
 public:
  // `paths`: ways to peers that share memory; null: there are none.
  Victim(std::uint64_t seed, LocalPaths* paths);

  Adapter& adapter() { return *adapter_; }
  Arena& arena() { return arena_; }
  const std::vector<Line>& lines() const { return lines_; }
  const std::vector<Key>& keys() const { return keys_; }
  std::uint32_t srqn() const { return xrc_srq_; }
  const Gid& own_gid() const { return own_gid_; }
  const Gid& peer_gid() const { return peer_gid_; }
  Random& random() { return random_; }

  // Brings queue pairs that fell back to RTS, posts receives and requests, polls. Returns how many
  // were in error.
  unsigned refresh(std::uint64_t now_ns);
  QpAttr attributes(const Line& line) const;
  // The ways are about to end.
  void leave() { adapter_->set_paths(nullptr); }

 private:
  void lend(std::size_t lent, std::span<const std::size_t> pieces);
  void add_line(QpType type);
  void connect(const Line& line, std::uint64_t now_ns);
  void post_receives(const Line& line, std::uint64_t now_ns);
  void post_requests(const Line& line, std::uint64_t now_ns);
  void change_keys(std::uint64_t now_ns);
  void post_key_work(const SendWr& wr, std::uint64_t now_ns);

  Random random_;
  Gid own_gid_;
  Gid peer_gid_;
  Arena arena_;
  std::unique_ptr<Adapter> adapter_;
  std::uint32_t pd_ = 0;
  std::uint32_t other_pd_ = 0;
  std::uint32_t cq_ = 0;
  std::uint32_t xrcd_ = 0;
  std::uint32_t xrc_srq_ = 0;
  std::size_t landing_ = 0;
  std::uint32_t landing_key_ = 0;
  std::size_t receiving_ = 0;
  std::uint32_t receiving_key_ = 0;
  std::size_t sending_ = 0;
  std::uint32_t sending_key_ = 0;
  // Lent parts: two windows on a region that reaches beyond them, and a region of pieces.
  struct Lent {
    std::uint32_t handle;
    std::size_t key;  // Index of its present key in keys_.
  };
  std::uint32_t under_ = 0;
  std::uint64_t window_at_ = 0;
  std::uint32_t window_bytes_ = 0;
  Lent window_1_{};
  Lent window_2_{};
  Lent pieces_{};
  std::vector<Line> lines_;
  std::vector<Key> keys_;
};

}  // namespace softhca::fuzz
