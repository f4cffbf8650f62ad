// From what a user calls an address to a GID, and back.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "link/link.hpp"
#include "vocabulary/gid.hpp"
#include "vocabulary/random.hpp"

namespace softhca {

// An address of this machine and the interface that has it (0: not known).
struct LocalAddress {
  Gid gid;
  unsigned interface_index = 0;
  std::uint32_t mtu_bytes = 1500;  // IP MTU of the interface.
};

// What has become of an address since it was resolved.
struct AddressCondition {
  bool present = true;  // The machine still has the address.
  bool link_up = true;  // Its interface is up and has a carrier.
  // The interface that has it, which may be another one than it was; 0: none, or not known.
  unsigned interface_index = 0;
  std::uint32_t mtu_bytes = 0;  // Of that interface; 0: not known.

  friend bool operator==(const AddressCondition&, const AddressCondition&) = default;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// "192.0.2.1", "fd00::2" or "fe80::1%eth0"; false if `text` is neither.
bool parse_gid(const std::string& text, Gid& gid);
std::string format_gid(const Gid& gid);

bool is_link_local(const Gid& gid);
bool is_loopback(const Gid& gid);

// `scope` goes with link-local and multicast IPv6 addresses.
SocketAddress socket_address(const Gid& gid, std::uint16_t port, unsigned scope);

// Resolves a numeric address or the name of an interface. Of an interface's addresses the first
// global IPv4 one is taken, else a global IPv6 one, else a link-local one.
// ENODEV: no such interface and not an address. EADDRNOTAVAIL: an interface without an address, or
// an address that this machine does not have.
LinkError resolve_local_address(const std::string& text, LocalAddress& local);

// Where the interfaces cannot be listed, what was is taken to be still so.
AddressCondition condition_of(const LocalAddress& local);

// A pseudo-random 127.x.y.z that is neither 127.0.0.1's network nor a broadcast address. Whether it
// is free shows when it is bound.
Gid random_loopback_address(Random& random);

}  // namespace softhca
