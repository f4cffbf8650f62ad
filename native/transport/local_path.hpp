// The way to an adapter that shares memory with this one.
#pragma once

#include "transport/local_packet.hpp"

namespace softhca {

class LocalPath {
 public:
  virtual ~LocalPath() = default;

  // There is room for a packet now. A path without room says when it has some by itself.
  virtual bool has_room() = 0;
  // Takes a packet over, which is done with when the call returns.
  virtual void send(const LocalPacket& packet) = 0;
};

}  // namespace softhca
