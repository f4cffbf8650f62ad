#include "link/port_owner.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "link/address.hpp"

namespace softhca {
namespace {

struct BoundSocket {
  Gid gid;
  unsigned uid = 0;
  std::uint64_t inode = 0;
  bool any_address = false;
};

struct DirectoryDeleter {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, DirectoryDeleter>;

// The kernel prints addresses as 32-bit words of its own byte order.
bool parse_kernel_address(const std::string& hex, Gid& gid) {
  if (hex.size() != 8 && hex.size() != 32) return false;
  std::uint8_t bytes[16] = {};
  for (std::size_t word = 0; word < hex.size() / 8; ++word) {
    const auto value =
        static_cast<std::uint32_t>(std::strtoul(hex.substr(word * 8, 8).c_str(), nullptr, 16));
    std::memcpy(bytes + word * 4, &value, 4);
  }
  if (hex.size() == 8) {
    gid = Gid::from_ipv4(bytes);
  } else {
    std::memcpy(gid.raw.data(), bytes, sizeof bytes);
  }
  return true;
}

void read_table(const char* path, std::uint16_t port, std::vector<BoundSocket>& sockets) {
  std::ifstream table(path);
  std::string line;
  std::getline(table, line);  // Headings.
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits;
    unsigned uid = 0, timeout = 0;
    std::uint64_t inode = 0;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
        timeout >> inode;
    const std::size_t colon = local.find(':');
    if (!fields || colon == std::string::npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) != port) continue;
    BoundSocket socket;
    if (!parse_kernel_address(local.substr(0, colon), socket.gid)) continue;
    socket.uid = uid;
    socket.inode = inode;
    const std::uint8_t zero[4] = {};
    socket.any_address = socket.gid.is_zero() || socket.gid == Gid::from_ipv4(zero);
    sockets.push_back(socket);
  }
}

bool is_number(const char* name) {
  return *name != 0 && std::all_of(name, name + std::strlen(name),
                                   [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool has_descriptor(const std::string& process_directory, const std::string& target) {
  const std::string descriptors = process_directory + "/fd";
  const Directory directory(opendir(descriptors.c_str()));
  if (!directory) return false;
  while (const dirent* entry = readdir(directory.get())) {
    char link[64];
    const ssize_t length = readlink((descriptors + "/" + entry->d_name).c_str(), link, sizeof link);
    if (length > 0 && target == std::string(link, static_cast<std::size_t>(length))) return true;
  }
  return false;
}

// "process 123 (name)"; empty if no process that we may look at has the socket.
std::string find_process(std::uint64_t inode) {
  const std::string target = "socket:[" + std::to_string(inode) + "]";
  const Directory processes(opendir("/proc"));
  if (!processes) return "";
  while (const dirent* entry = readdir(processes.get())) {
    if (!is_number(entry->d_name)) continue;
    const std::string directory = std::string("/proc/") + entry->d_name;
    if (!has_descriptor(directory, target)) continue;
    std::string name;
    std::ifstream(directory + "/comm") >> name;
    if (std::to_string(getpid()) == entry->d_name) return "this very process";
    return "process " + std::string(entry->d_name) + " (" + name + ")";
  }
  return "";
}

bool kernel_has_rxe() { return access("/sys/module/rdma_rxe", F_OK) == 0; }

std::string describe_owner(const BoundSocket& socket, const std::string& endpoint) {
  // A socket of every address leaves none to open instead.
  const std::string or_else =
      socket.any_address ? ", or run in another network namespace" : ", or open another address";
  const std::string process = find_process(socket.inode);
  if (!process.empty()) {
    return process + " holds " + endpoint + "; close it" + or_else;
  }
  if (kernel_has_rxe() && socket.uid == 0 && socket.any_address) {
    return "the kernel's rdma_rxe holds " + endpoint +
           " for every address of this network namespace; remove it (modprobe -r rdma_rxe)" +
           or_else;
  }
  if (geteuid() == 0) {
    return "a socket of the kernel or of another container holds " + endpoint + "; remove it" +
           or_else;
  }
  return "a process of user " + std::to_string(socket.uid) + " holds " + endpoint +
         "; ask that user" + or_else;
}

}  // namespace

std::string explain_port_owner(const Gid& gid, std::uint16_t port) {
  std::vector<BoundSocket> sockets;
  if (gid.is_ipv4()) read_table("/proc/net/udp", port, sockets);
  // A dual-stack socket on :: keeps IPv4 addresses from being bound, too.
  read_table("/proc/net/udp6", port, sockets);
  for (const BoundSocket& socket : sockets) {
    const bool in_the_way = socket.gid == gid || socket.any_address;
    if (!in_the_way) continue;
    const std::string address =
        socket.gid.is_ipv4() ? format_gid(socket.gid) : "[" + format_gid(socket.gid) + "]";
    return describe_owner(socket, address + ":" + std::to_string(port));
  }
  return "nothing in /proc/net/udp shows who holds UDP port " + std::to_string(port) +
         "; it may have been freed in the meantime: try again";
}

}  // namespace softhca
