// A peer that speaks to neighbours by hand, and may say what no adapter would.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "link/file_descriptor.hpp"
#include "neighbour/greeting.hpp"
#include "neighbour/shared_segment.hpp"
#include "tests/check.hpp"
#include "tests/patience.hpp"

namespace softhca::testing {

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
};

// Where a neighbour of this user with that address listens.
inline Name name_of(const Gid& gid) {
  char digits[3];
  std::string text = "softhca-" + std::to_string(geteuid()) + "-";
  for (const std::uint8_t byte : gid.raw) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  Name name;
  name.address.sun_family = AF_UNIX;
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

inline FileDescriptor local_socket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

inline void wait_for(int fd) {
  pollfd waited{fd, POLLIN, 0};
  CHECK_EQ(poll(&waited, 1, kPatienceMs), 1);
}

inline NeighbourMessage card(MessageKind kind, const Gid& gid) {
  NeighbourMessage message;
  message.kind = kind;
  message.segment_bytes = sizeof(SegmentLayout);
  message.gid = gid;
  return message;
}

// Somebody with an address, at which it listens as every adapter does.
struct Guest {
  explicit Guest(const Gid& address) : own(address) {
    CHECK_EQ(segment.create(), 0);
    Name name = name_of(own);
    CHECK_EQ(bind(listener.get(), name.get(), name.length), 0);
    CHECK_EQ(listen(listener.get(), 16), 0);
  }
  void connect_to(const Gid& host) {
    talk = local_socket();
    Name name = name_of(host);
    CHECK_EQ(connect(talk.get(), name.get(), name.length), 0);
  }
  void greet() {
    CHECK_EQ(send_message(talk.get(), card(MessageKind::HELLO, own), {segment.fd(), bell.get()}),
             0);
  }
  // Up to the host's answer; the descriptors that come with it.
  std::vector<FileDescriptor> meet(const Gid& host) {
    connect_to(host);
    greet();
    wait_for(talk.get());
    NeighbourMessage answer;
    std::vector<FileDescriptor> fds;
    CHECK_EQ(receive_message(talk.get(), answer, fds), 0);
    return fds;
  }
  void agree() { CHECK_EQ(send_message(talk.get(), card(MessageKind::AGREED, own), {}), 0); }

  const Gid own;
  SharedSegment segment;
  FileDescriptor bell{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  FileDescriptor listener = local_socket();
  FileDescriptor talk;
};

}  // namespace softhca::testing
