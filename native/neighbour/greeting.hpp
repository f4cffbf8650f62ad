// What two adapters of a host tell each other when they meet, over a local socket, and the
// descriptors that go with it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "link/file_descriptor.hpp"
#include "vocabulary/gid.hpp"

namespace softhca {

enum class MessageKind : std::uint32_t {
  HELLO = 1,
  WELCOME = 2,
  BUFFER = 3,
  FORGET = 4,
  MEMORY = 5,
  FORGET_MEMORY = 6,
  AGREED = 7,  // To a WELCOME that came in time: who sent it may send packets from now on.
  WAKE = 8,    // What a bell says otherwise.
};

struct NeighbourMessage {
  std::uint64_t magic = 0;
  MessageKind kind = MessageKind::HELLO;
  std::uint32_t segment_bytes = 0;
  Gid gid;
  // Where the sender has a number, and which: who can read it there can fetch payloads.
  std::uint64_t token_address = 0;
  std::uint64_t token = 0;
  // HELLO and WELCOME: the sender. MEMORY: the process whose memory file comes along. As the sender
  // counts processes.
  std::uint64_t process = 0;
  // BUFFER and FORGET: memory that is a file. MEMORY and FORGET_MEMORY: that of another process.
  std::uint64_t buffer = 0;
  std::uint64_t buffer_bytes = 0;
};

// Errno; 0 is success.
int send_message(int socket, const NeighbourMessage& message, const std::vector<int>& fds);
// EAGAIN: nothing yet. ECONNRESET: nothing will come. EPROTO: not one of ours.
int receive_message(int socket, NeighbourMessage& message, std::vector<FileDescriptor>& fds);

// The process at the other end; false if it is another user's, or may be.
bool peer_process(int socket, pid_t& pid);

// Whether a process of this user is in our PID namespace, and could as well end us by a signal.
bool shares_processes(pid_t pid);

}  // namespace softhca
