// Where adapters of this host and user listen for each other.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include "link/file_descriptor.hpp"
#include "vocabulary/gid.hpp"

namespace softhca {

// An abstract name: a file that nobody has to remove.
socklen_t name_of(const Gid& gid, unsigned interface_index, sockaddr_un& address);

FileDescriptor local_socket();

}  // namespace softhca
