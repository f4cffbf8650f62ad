// The message vectors of sendmmsg() and recvmmsg(), and their ancillary fields.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>

#include "link/address.hpp"
#include "link/link.hpp"

namespace softhca {

class SendMessages {
 public:
  SendMessages();

  // Describes `datagram`, whose bytes must stay until they are sent. Ancillary fields are attached
  // only where the route differs from the socket's defaults.
  void prepare(std::size_t index, const Datagram& datagram, unsigned scope, bool flow_label);
  mmsghdr* message(std::size_t index) { return &messages_[index]; }

 private:
  struct alignas(cmsghdr) Control {
    std::uint8_t bytes[2 * CMSG_SPACE(sizeof(int))];
  };

  std::array<mmsghdr, kLinkBatch> messages_{};
  std::array<iovec, kLinkBatch> vectors_{};
  std::array<SocketAddress, kLinkBatch> names_{};
  std::array<Control, kLinkBatch> controls_{};
};

class ReceiveMessages {
 public:
  ReceiveMessages();

  void prepare(std::size_t first, std::size_t count);
  mmsghdr* message(std::size_t index) { return &messages_[index]; }
  // What arrived in slot `index`. `local` is the destination where the kernel does not tell it.
  Datagram datagram(std::size_t index, const Gid& local) const;

 private:
  struct alignas(cmsghdr) Control {
    std::uint8_t bytes[160];
  };

  std::array<mmsghdr, kLinkBatch> messages_{};
  std::array<iovec, kLinkBatch> vectors_{};
  std::array<SocketAddress, kLinkBatch> names_{};
  std::array<Control, kLinkBatch> controls_{};
  std::unique_ptr<std::uint8_t[]> bytes_;
};

}  // namespace softhca
