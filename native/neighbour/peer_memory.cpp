#include "neighbour/peer_memory.hpp"

#include <sys/uio.h>

namespace softhca {

bool PeerMemory::copy_in(std::uint64_t address, ByteSpan to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const iovec here{to.data() + done, to.size() - done};
    const iovec there{reinterpret_cast<void*>(address + done), to.size() - done};
    const ssize_t moved = process_vm_readv(pid_, &here, 1, &there, 1, 0);
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace softhca
