// Who is told what an adapter does, as it does it. A simulation records it.
#pragma once

#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/enums.hpp"

namespace softhca {

// What a key stands for.
struct NamedMemory {
  std::uint32_t key = 0;
  std::uint64_t address = 0;  // What the key calls its first byte.
  std::uint64_t length = 0;
  std::uint32_t access = 0;
  std::uint32_t pd = 0;
  std::uint32_t qpn = 0;  // The only queue pair that may use it; 0: any of the domain.
  bool is_window = false;
  // Of a window: the key of the region under it, and what that calls the first byte.
  std::uint32_t region_key = 0;
  std::uint64_t region_address = 0;
};

class Observer {
 public:
  virtual ~Observer() = default;

  // Work request `wr_id` was taken, with `length` bytes of buffers.
  virtual void posted_send(std::uint32_t qpn, std::uint64_t wr_id, WrOpcode opcode,
                           std::uint64_t length, bool signaled) = 0;
  virtual void posted_receive(std::uint32_t qpn, std::uint64_t wr_id, std::uint64_t length) = 0;
  // The same to a shared receive queue, by its handle.
  virtual void posted_shared_receive(std::uint32_t srq, std::uint64_t wr_id,
                                     std::uint64_t length) = 0;
  virtual void completed(std::uint32_t qpn, std::uint64_t wr_id, WcStatus status,
                         std::uint32_t byte_len, bool is_receive) = 0;
  // A queue pair was made, with room for so many work requests. `receive_pd` is that of its shared
  // receive queue, if it has one.
  virtual void created(std::uint32_t qpn, QpType type, std::uint32_t pd, std::uint32_t receive_pd,
                       std::uint32_t sends, std::uint32_t receives) = 0;
  // `rights` are those that it gives to peers, `reads` how many READs and atomics it asks for at
  // once, or, before RTS, how many it answers. The state may be the same as before.
  virtual void changed_state(std::uint32_t qpn, QpState from, QpState to, std::uint32_t rights,
                             std::uint32_t reads) = 0;
  virtual void destroyed(std::uint32_t qpn) = 0;
  // Bytes of user memory, by the key and the address that the access was made with.
  virtual void wrote(std::uint32_t key, std::uint64_t address, ByteView before, ByteView after) = 0;
  // A key stands for memory from now on, until it is told that it stands for none.
  virtual void named(const NamedMemory& memory) = 0;
  virtual void unnamed(std::uint32_t key) = 0;
  virtual void raised(EventType type, std::uint32_t object) = 0;
};

}  // namespace softhca
