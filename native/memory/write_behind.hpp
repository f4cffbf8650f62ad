// Payloads of packets that came together, for the memory of another process: what continues what
// came before is written with it, since each write is a system call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory/address_space.hpp"
#include "vocabulary/bytes.hpp"

namespace softhca {

// What is being written of a message.
struct MessagePart {
  bool goes_on = false;  // A packet to come ends it.
  bool lost = false;     // Memory was not there.
};

class WriteBehind {
 public:
  // Somebody will flush soon, and until then the bytes stay where they are.
  bool may_wait = false;

  // Writes now, or later if the message goes on. False: memory was not there, for these bytes or
  // for earlier ones of the message.
  bool copy_out(AddressSpace& to, std::uint64_t address, ByteView from, MessagePart& part);
  // Before anybody hears of something that comes after what waits.
  void flush() {
    if (count_ > 0) write();
  }

 private:
  void write();

  // Of a link's batch.
  std::array<ByteView, 64> pieces_;
  std::size_t count_ = 0;
  AddressSpace* to_ = nullptr;
  MessagePart* part_ = nullptr;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace softhca
