// The sockets of a UDP link, opened and set up; what is sent and received is udp_link's.
#pragma once

#include <cstdint>

#include "link/address.hpp"
#include "link/file_descriptor.hpp"
#include "link/link.hpp"

namespace softhca {

// Receives what is sent to (`local`, kRoceUdpPort), with the ancillary fields that a Route needs.
// Refuses to share the port: two adapters on one address would steal each other's packets.
// EADDRINUSE comes with who holds the port.
LinkError open_receive_socket(const LocalAddress& local, FileDescriptor& socket);

// Whether the ancillary fields come along.
LinkError ask_for_fields(int fd, bool ipv4, bool wanted);

// Receives what is sent to `group` on the interface of `local`. Shared: every adapter of a machine
// that joins gets each datagram.
LinkError open_group_socket(const LocalAddress& local, const Gid& group, FileDescriptor& socket);

// Sends from (`local`, `port`). Its IPv4 packets carry identification 0 and DF (unconnected,
// IP_PMTUDISC_PROBE), which is what our ICRCs are computed with. Only those of IPv6 carry UDP
// checksums.
LinkError open_send_socket(const LocalAddress& local, std::uint16_t port, FileDescriptor& socket);

// Through which interface a sending socket's datagrams to groups leave: that of `local`.
LinkError send_groups_to(const LocalAddress& local, int socket);

// Lets a sending socket of IPv4 make UDP checksums, which messages of several datagrams need. Where
// it cannot be, they are refused when sent.
void allow_checksums(int fd);

}  // namespace softhca
