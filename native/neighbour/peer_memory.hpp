// The memory of another process of this user, read in one system call; and what of it is a file
// that is mapped here too.
#pragma once

#include <sys/types.h>

#include "memory/address_space.hpp"

namespace softhca {

class PeerMemory final : public AddressSpace {
 public:
  explicit PeerMemory(pid_t pid) : pid_(pid) {}

  bool copy_in(std::uint64_t address, ByteSpan to) override;
  // Nobody writes to a peer: it fetches what it gets.
  bool copy_out(std::uint64_t, ByteView) override { return false; }
  bool fetch_add(std::uint64_t, std::uint64_t, std::uint64_t&) override { return false; }
  bool compare_swap(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t&) override {
    return false;
  }

 private:
  const pid_t pid_;
};

}  // namespace softhca
