// The memory of another process of this user, read in one system call; and what of it is a file
// that is mapped here too.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>

#include "memory/address_space.hpp"
#include "memory/process_copy.hpp"

namespace softhca {

class PeerMemory final : public AddressSpace {
 public:
  explicit PeerMemory(pid_t pid) : pid_(pid) {}

  bool copy_in(std::uint64_t address, ByteSpan to) override;
  // What copy_in() is about to be asked for, one after the other, at most kMostReads of them: then
  // copy_ahead() copies all in one system call. Nothing else may happen to the memory here in
  // between.
  void expect(std::uint64_t address, ByteSpan to) { reads_[expected_++] = {address, to}; }
  void copy_ahead();
  // Nothing of it will be asked for any more.
  void forget_ahead() { expected_ = ahead_ = asked_ = 0; }
  // Nobody writes to a peer: it fetches what it gets.
  bool copy_out(std::uint64_t, ByteView) override { return false; }
  bool fetch_add(std::uint64_t, std::uint64_t, std::uint64_t&) override { return false; }
  bool compare_swap(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t&) override {
    return false;
  }

 private:
  const pid_t pid_;
  std::array<ProcessRead, kMostReads> reads_;
  std::size_t expected_ = 0;
  std::size_t ahead_ = 0;  // Of those: copied.
  std::size_t asked_ = 0;  // Of these: asked for.
};

}  // namespace softhca
