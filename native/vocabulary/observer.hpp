// Who is told what an adapter does, as it does it. A simulation records it.
#pragma once

#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/enums.hpp"

namespace softhca {

class Observer {
 public:
  virtual ~Observer() = default;

  // Work request `wr_id` was taken, with `length` bytes of buffers.
  virtual void posted_send(std::uint32_t qpn, std::uint64_t wr_id, WrOpcode opcode,
                           std::uint64_t length, bool signaled) = 0;
  virtual void posted_receive(std::uint32_t qpn, std::uint64_t wr_id, std::uint64_t length) = 0;
  virtual void completed(std::uint32_t qpn, std::uint64_t wr_id, WcStatus status,
                         std::uint32_t byte_len, bool is_receive) = 0;
  virtual void changed_state(std::uint32_t qpn, QpState from, QpState to) = 0;
  virtual void destroyed(std::uint32_t qpn) = 0;
  // Bytes of user memory, by the key and the address that the access was made with.
  virtual void wrote(std::uint32_t key, std::uint64_t address, ByteView before, ByteView after) = 0;
  virtual void raised(EventType type, std::uint32_t object) = 0;
};

}  // namespace softhca
