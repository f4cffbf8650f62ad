#include "neighbour/greeting.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace softhca {
namespace {

constexpr std::uint64_t kMagic = 0x736f66746863'0005;  // Changes with messages and rings.
constexpr std::size_t kMaxDescriptors = 2;
// Of the kernel, unless somebody has set another.
constexpr std::uint64_t kUsualOverflow = 65534;

// Whether the number may be that of several users: of all whom this user namespace has none for.
bool is_ambiguous(uid_t uid) {
  std::uint64_t overflow = kUsualOverflow;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  if (uid != overflow) return false;
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t inside = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  const bool has_all = map >> inside >> outside >> count && inside == 0 && count == UINT32_MAX;
  return !has_all;
}

}  // namespace

int send_message(int socket, const NeighbourMessage& message, const std::vector<int>& fds) {
  NeighbourMessage sent = message;
  sent.magic = kMagic;
  iovec piece{&sent, sizeof sent};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    const std::size_t bytes = sizeof(int) * std::min(fds.size(), kMaxDescriptors);
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), fds.data(), bytes);
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

int receive_message(int socket, NeighbourMessage& message, std::vector<FileDescriptor>& fds) {
  iovec piece{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  fds.clear();
  const ssize_t got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EWOULDBLOCK ? EAGAIN : errno;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if (got == 0) return ECONNRESET;
  const bool whole = static_cast<std::size_t>(got) == sizeof message;
  return whole && message.magic == kMagic ? 0 : EPROTO;
}

// A process in a namespace below ours has a number there as well.
bool shares_processes(pid_t pid) {
  if (pid == getpid()) return true;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (pid > 0 && std::getline(status, line)) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream numbers(line.substr(6));
    pid_t here = 0;
    pid_t below = 0;
    return numbers >> here && here == pid && !(numbers >> below);
  }
  return false;
}

bool peer_process(int socket, pid_t& pid) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return false;
  pid = credentials.pid;
  return credentials.uid == geteuid() && !is_ambiguous(credentials.uid);
}

}  // namespace softhca
