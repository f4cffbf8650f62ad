#include "neighbour/local_name.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "link/address.hpp"

namespace softhca {

socklen_t name_of(const Gid& gid, unsigned interface_index, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  char* name = address.sun_path + 1;
  int length = std::snprintf(name, sizeof address.sun_path - 1, "softhca-%u-", geteuid());
  for (const std::uint8_t byte : gid.raw) length += std::snprintf(name + length, 3, "%02x", byte);
  // Other interfaces may have the same address, and lead to others.
  if (!gid.is_ipv4() && is_link_local(gid)) {
    length += std::snprintf(name + length, sizeof "-4294967295", "-%u", interface_index);
  }
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                static_cast<std::size_t>(length));
}

FileDescriptor local_socket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace softhca
