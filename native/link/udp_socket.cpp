#include "link/udp_socket.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "link/port_owner.hpp"

namespace softhca {
namespace {

// Absent from the C library's headers of this age.
constexpr int kUdpNoCheck6Rx = 102;
constexpr int kUdpGro = 104;
constexpr int kIpMulticastAll = 49;
constexpr int kIpv6MulticastAll = 29;
constexpr int kIpv6FlowInfo = 11;
constexpr int kIpv6FlowInfoSend = 33;

constexpr int kReceiveBufferBytes = 8 << 20;
constexpr int kSendBufferBytes = 4 << 20;
constexpr int kDefaultHopLimit = 64;

int set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value);
}

LinkError system_error(const std::string& what) {
  const int error = errno;
  return {error, what + ": " + std::strerror(error)};
}

LinkError make_socket(const Gid& gid, FileDescriptor& result) {
  const int family = gid.is_ipv4() ? AF_INET : AF_INET6;
  result.reset(socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP));
  if (!result.is_open()) return system_error("cannot open a UDP socket");
  if (family == AF_INET6 && set_option(result.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1) != 0) {
    return system_error("cannot make a socket IPv6-only");
  }
  return {};
}

std::string endpoint_text(const Gid& gid, std::uint16_t port) {
  const std::string address = format_gid(gid);
  return (gid.is_ipv4() ? address : "[" + address + "]") + ":" + std::to_string(port);
}

// 0, where there is no such limit.
int first_unprivileged_port() {
  int port = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> port;
  return port;
}

LinkError bind_socket(int fd, const Gid& gid, std::uint16_t port, unsigned scope) {
  SocketAddress address = socket_address(gid, port, scope);
  if (bind(fd, address.get(), address.length) == 0) return {};
  const int error = errno;
  std::string message = "cannot receive on " + endpoint_text(gid, port) + ": ";
  if (error == EADDRINUSE) {
    message += explain_port_owner(gid, port);
  } else if (error == EADDRNOTAVAIL && gid.is_ipv4()) {
    message += "this machine does not have that address";
  } else if (error == EADDRNOTAVAIL) {
    // It is listed, or it would not have come so far; of IPv6 that is not all (RFC 4862, 5.4).
    message +=
        "this machine may not use that address before it knows that no other has it "
        "(duplicate address detection); try again, or look whether another has it";
  } else {
    message += std::strerror(error);
    if (const int first = first_unprivileged_port(); error == EACCES && port < first) {
      message += "; net.ipv4.ip_unprivileged_port_start is " + std::to_string(first) +
                 " here, and must not be above the port of RoCEv2";
    }
  }
  return {error, message};
}

// The large buffer is for bursts of many peers; without the privilege to force it the system's
// limit has to do.
void grow_receive_buffer(int fd) {
  if (set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, kReceiveBufferBytes) != 0) {
    set_option(fd, SOL_SOCKET, SO_RCVBUF, kReceiveBufferBytes);
  }
}

LinkError set_receive_options(int fd, bool ipv4) {
  grow_receive_buffer(fd);
  // Peers may leave the UDP checksum 0: the ICRC covers the packet (Annex A17.4.5.2).
  if (!ipv4 && set_option(fd, IPPROTO_UDP, kUdpNoCheck6Rx, 1) != 0) {
    return system_error("cannot ask for datagrams without a checksum");
  }
  // Trains arrive whole; a kernel that cannot do that takes them apart.
  set_option(fd, IPPROTO_UDP, kUdpGro, 1);
  return ask_for_fields(fd, ipv4, true);
}

// Which group a datagram was sent to. Of others the destination is the address of their socket.
LinkError ask_for_destination(int fd, bool ipv4) {
  const int done = ipv4 ? set_option(fd, IPPROTO_IP, IP_PKTINFO, 1)
                        : set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
  return done != 0 ? system_error("cannot ask for a datagram's destination") : LinkError{};
}

// What others of this machine have joined on interfaces of theirs is not for this socket.
void hear_own_interface_only(int fd, bool ipv4) {
  if (ipv4) {
    set_option(fd, IPPROTO_IP, kIpMulticastAll, 0);
  } else {
    set_option(fd, IPPROTO_IPV6, kIpv6MulticastAll, 0);
  }
}

LinkError join(int fd, const LocalAddress& local, const Gid& group) {
  if (group.is_ipv4()) {
    ip_mreqn request{};
    std::memcpy(&request.imr_multiaddr, group.ipv4(), 4);
    std::memcpy(&request.imr_address, local.gid.ipv4(), 4);
    request.imr_ifindex = static_cast<int>(local.interface_index);
    if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) == 0) return {};
  } else {
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.raw.data(), 16);
    request.ipv6mr_interface = local.interface_index;
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request) == 0) return {};
  }
  return system_error("cannot join multicast group " + format_gid(group));
}

// The ICRC covers a packet, which needs no UDP checksum beside it. Where the kernel knows of no
// such option, a packet with a checksum is as good. Over IPv6 it stays: a socket that has not asked
// for packets without one does not get them (RFC 8200, 8.1), and not every peer is an adapter.
void leave_out_checksums(int fd) { set_option(fd, SOL_SOCKET, SO_NO_CHECK, 1); }

LinkError set_ipv4_send_options(int fd) {
  bool failed = false;
  failed |= set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE) != 0;
  failed |= set_option(fd, IPPROTO_IP, IP_TTL, kDefaultHopLimit) != 0;
  failed |= set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 1) != 0;
  failed |= set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, kDefaultHopLimit) != 0;
  return failed ? system_error("cannot set up a sending socket") : LinkError{};
}

LinkError set_ipv6_send_options(int fd) {
  bool failed = false;
  failed |= set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE) != 0;
  failed |= set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, kDefaultHopLimit) != 0;
  failed |= set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1) != 0;
  failed |= set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, kDefaultHopLimit) != 0;
  set_option(fd, IPPROTO_IPV6, kIpv6FlowInfoSend, 1);
  return failed ? system_error("cannot set up a sending socket") : LinkError{};
}

}  // namespace

LinkError ask_for_fields(int fd, bool ipv4, bool wanted) {
  const int on = wanted ? 1 : 0;
  bool failed = false;
  if (ipv4) {
    failed |= set_option(fd, IPPROTO_IP, IP_RECVTOS, on) != 0;
    failed |= set_option(fd, IPPROTO_IP, IP_RECVTTL, on) != 0;
  } else {
    failed |= set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, on) != 0;
    failed |= set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, on) != 0;
    // Only a field of the GRH that a UD receiver sees: its absence is no reason to fail.
    set_option(fd, IPPROTO_IPV6, kIpv6FlowInfo, on);
  }
  return failed ? system_error("cannot ask for a datagram's address fields") : LinkError{};
}

LinkError open_receive_socket(const LocalAddress& local, FileDescriptor& socket) {
  LinkError error = make_socket(local.gid, socket);
  if (!error.ok()) return error;
  error = set_receive_options(socket.get(), local.gid.is_ipv4());
  if (!error.ok()) return error;
  return bind_socket(socket.get(), local.gid, kRoceUdpPort, local.interface_index);
}

LinkError send_groups_to(const LocalAddress& local, int socket) {
  const int index = static_cast<int>(local.interface_index);
  bool failed = false;
  if (local.gid.is_ipv4()) {
    ip_mreqn interface {};
    std::memcpy(&interface.imr_address, local.gid.ipv4(), 4);
    interface.imr_ifindex = index;
    failed = setsockopt(socket, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) != 0;
  } else {
    failed = set_option(socket, IPPROTO_IPV6, IPV6_MULTICAST_IF, index) != 0;
  }
  return failed ? system_error("cannot set up a sending socket") : LinkError{};
}

void allow_checksums(int fd) { set_option(fd, SOL_SOCKET, SO_NO_CHECK, 0); }

LinkError open_group_socket(const LocalAddress& local, const Gid& group, FileDescriptor& socket) {
  LinkError error = make_socket(group, socket);
  if (!error.ok()) return error;
  error = set_receive_options(socket.get(), group.is_ipv4());
  if (error.ok()) error = ask_for_destination(socket.get(), group.is_ipv4());
  if (!error.ok()) return error;
  if (set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1) != 0) {
    return system_error("cannot share a multicast group's port");
  }
  hear_own_interface_only(socket.get(), group.is_ipv4());
  error = bind_socket(socket.get(), group, kRoceUdpPort, local.interface_index);
  if (!error.ok()) return error;
  return join(socket.get(), local, group);
}

LinkError open_send_socket(const LocalAddress& local, std::uint16_t port, FileDescriptor& socket) {
  LinkError error = make_socket(local.gid, socket);
  if (!error.ok()) return error;
  error = local.gid.is_ipv4() ? set_ipv4_send_options(socket.get())
                              : set_ipv6_send_options(socket.get());
  if (!error.ok()) return error;
  error = send_groups_to(local, socket.get());
  // Emulators of a kernel may not know of that; what is sent to no group does not need it.
  if (!error.ok() && error.error != ENOPROTOOPT) return error;
  if (local.gid.is_ipv4()) leave_out_checksums(socket.get());
  set_option(socket.get(), SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
  // Nothing is read here: what strangers send to this port shall not pile up.
  set_option(socket.get(), SOL_SOCKET, SO_RCVBUF, 1);
  SocketAddress address = socket_address(local.gid, port, local.interface_index);
  if (bind(socket.get(), address.get(), address.length) == 0) return {};
  return system_error("cannot send from " + endpoint_text(local.gid, port));
}

}  // namespace softhca
