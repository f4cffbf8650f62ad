// The message vectors of sendmmsg() and recvmmsg(), and their ancillary fields.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "link/address.hpp"
#include "link/link.hpp"
#include "wire/icrc_memory.hpp"

namespace softhca {

class SendMessages {
 public:
  SendMessages();

  // Describes messages anew, from index 0.
  void begin() { vectors_used_ = icrcs_used_ = changed_count_ = 0; }
  // Describes `train` as the message `index`: one datagram, or several that train_length() counted.
  // Their bytes must stay until they are sent, and may have other ICRCs until restore(). Ancillary
  // fields are attached only where the route differs from the socket's defaults.
  void prepare(std::size_t index, std::span<const Datagram> train, unsigned scope, bool flow_label);
  mmsghdr* message(std::size_t index) { return &messages_[index]; }
  // Gives the datagrams their own ICRCs again. Once, after the messages were sent or refused.
  void restore();
  // Datagrams of a message.
  std::size_t count(std::size_t index) const { return counts_[index]; }

 private:
  struct alignas(cmsghdr) Control {
    std::uint8_t bytes[3 * CMSG_SPACE(sizeof(int))];
  };
  using Icrc = std::array<std::uint8_t, 4>;

  // Where an ICRC was changed, and by what.
  struct Changed {
    std::uint8_t* icrc;
    std::uint32_t by;
  };

  void append(msghdr& header, const std::uint8_t* bytes, std::size_t count);
  void append_train(msghdr& header, std::span<const Datagram> train);
  void append_renumbered(msghdr& header, std::span<const Datagram> train);

  std::array<mmsghdr, kLinkBatch> messages_{};
  std::array<std::size_t, kLinkBatch> counts_{};
  std::array<iovec, 2 * kLinkBatch> vectors_{};
  std::size_t vectors_used_ = 0;
  std::array<Icrc, kLinkBatch> icrcs_{};
  std::size_t icrcs_used_ = 0;
  TrainChanges changes_;
  std::array<Changed, kLinkBatch> changed_{};
  std::size_t changed_count_ = 0;
  // What a name says. No message goes to the one that all are at first.
  struct Addressee {
    Gid gid;
    std::uint16_t port = 0;
    unsigned scope = 0;
    std::uint32_t flow_label = 0;
    friend bool operator==(const Addressee&, const Addressee&) = default;
  };
  void name(std::size_t index, const Addressee& to);

  std::array<Addressee, kLinkBatch> named_;
  std::array<SocketAddress, kLinkBatch> names_{};
  std::array<Control, kLinkBatch> controls_{};
};

// How many datagrams from the front may leave as one train (UDP_SEGMENT): of one route, and of one
// length but for the last, which may be shorter.
std::size_t train_length(std::span<const Datagram> datagrams);

class ReceiveMessages {
 public:
  ReceiveMessages();

  // Makes `count` slots from `first` ready for recvmmsg().
  void prepare(std::size_t first, std::size_t count);
  mmsghdr* message(std::size_t index) { return &messages_[index]; }
  // The slots below `count` were filled. `local` is the destination where the kernel does not tell
  // it.
  void filled(std::size_t count, const Gid& local);
  // Takes datagrams out of the filled slots, those of a train one by one; returns how many.
  std::size_t take(std::span<Datagram> datagrams);
  bool empty() const { return slot_ == filled_; }

 private:
  struct alignas(cmsghdr) Control {
    std::uint8_t bytes[160];
  };

  void open_slot();

  std::array<mmsghdr, kLinkBatch> messages_{};
  std::array<iovec, kLinkBatch> vectors_{};
  std::array<SocketAddress, kLinkBatch> names_{};
  std::array<Control, kLinkBatch> controls_{};
  std::unique_ptr<std::uint8_t[]> bytes_;
  Gid local_;
  std::size_t filled_ = 0;
  // What is left of the slot that datagrams are taken from.
  std::size_t slot_ = 0;
  Route route_;
  std::uint16_t place_ = 0;  // Of the next datagram in its message.
  ByteView left_;
  std::size_t segment_bytes_ = 0;
};

}  // namespace softhca
