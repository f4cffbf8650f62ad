#include "neighbour/peer_memory.hpp"

#include "memory/process_copy.hpp"

namespace softhca {

bool PeerMemory::copy_in(std::uint64_t address, ByteSpan to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t moved = read_process(pid_, address + done, to.subspan(done));
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace softhca
