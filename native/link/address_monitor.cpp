#include "link/address_monitor.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace softhca {

int AddressMonitor::open() {
  FileDescriptor made(::socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!made.is_open()) return errno;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(made.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return errno;
  socket_ = std::move(made);
  return 0;
}

void AddressMonitor::clear() {
  std::array<std::byte, 8192> message;
  ssize_t size = 0;
  do {
    size = recv(socket_.get(), message.data(), message.size(), MSG_DONTWAIT);
    // ENOBUFS: messages were lost, which is news as well.
  } while (size > 0 || (size < 0 && (errno == EINTR || errno == ENOBUFS)));
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  // Whatever else ails the socket would make it readable for ever. What is no socket of ours any
  // more was closed by somebody else.
  if (size < 0 && (errno == EBADF || errno == ENOTSOCK)) socket_.release();
  close();
}

}  // namespace softhca
