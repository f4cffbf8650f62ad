#include "neighbour/peer_memory.hpp"

#include <span>

namespace softhca {

void PeerMemory::copy_ahead() { ahead_ = read_process(pid_, std::span(reads_).first(expected_)); }

bool PeerMemory::copy_in(std::uint64_t address, ByteSpan to) {
  if (asked_ < ahead_) {
    const ProcessRead& next = reads_[asked_++];
    if (next.address == address && next.to.data() == to.data() && next.to.size() == to.size()) {
      return true;
    }
    forget_ahead();
  }
  const ProcessRead read{address, to};
  return read_process(pid_, std::span(&read, 1)) == 1;
}

}  // namespace softhca
