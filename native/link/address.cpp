#include "link/address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "link/file_descriptor.hpp"

namespace softhca {
namespace {

struct InterfacesDeleter {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};
using Interfaces = std::unique_ptr<ifaddrs, InterfacesDeleter>;

Interfaces list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) list = nullptr;
  return Interfaces(list);
}

bool gid_of(const sockaddr* address, Gid& gid) {
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address);
    gid = Gid::from_ipv4(reinterpret_cast<const std::uint8_t*>(&in->sin_addr));
    return true;
  }
  if (address->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
    std::memcpy(gid.raw.data(), &in6->sin6_addr, gid.raw.size());
    return true;
  }
  return false;
}

std::uint32_t interface_mtu(const char* name) {
  FileDescriptor probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, name, sizeof request.ifr_name - 1);
  if (!probe.is_open() || ioctl(probe.get(), SIOCGIFMTU, &request) != 0) return 1500;
  return static_cast<std::uint32_t>(std::max(request.ifr_mtu, 0));
}

LocalAddress local_address(const Gid& gid, const char* interface_name) {
  return {gid, if_nametoindex(interface_name), interface_mtu(interface_name)};
}

// Lower is better: global IPv4, global IPv6, link-local.
int preference(const Gid& gid) {
  if (is_link_local(gid)) return 2;
  return gid.is_ipv4() ? 0 : 1;
}

LinkError resolve_interface(const Interfaces& interfaces, const std::string& name,
                            LocalAddress& local) {
  int best = 3;
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    Gid gid;
    if (name != entry->ifa_name || !gid_of(entry->ifa_addr, gid)) continue;
    if (preference(gid) >= best) continue;
    best = preference(gid);
    local = local_address(gid, entry->ifa_name);
  }
  if (best < 3) return {};
  if (if_nametoindex(name.c_str()) == 0) {
    return {ENODEV, "'" + name + "' is neither an IP address nor an interface of this machine"};
  }
  return {EADDRNOTAVAIL,
          "interface " + name + " has no IP address; give it one, or open an address"};
}

// All of 127.0.0.0/8 belongs to the machine, though the interface lists one address of it.
bool covers(const ifaddrs& entry, const Gid& gid) {
  Gid own;
  if (!gid_of(entry.ifa_addr, own)) return false;
  if (own == gid) return true;
  return (entry.ifa_flags & IFF_LOOPBACK) != 0 && is_loopback(own) && is_loopback(gid) &&
         own.is_ipv4() && gid.is_ipv4();
}

// Some sandboxes do not list interfaces. An address that can be bound is this machine's.
LinkError resolve_unlisted(const std::string& text, LocalAddress& local) {
  constexpr std::uint32_t kLoopbackMtuBytes = 65536;
  LocalAddress found;
  if (!parse_gid(text, found.gid)) {
    return {ENODEV, "'" + text + "' is no IP address, and interfaces cannot be listed here"};
  }
  if (is_loopback(found.gid)) found.mtu_bytes = kLoopbackMtuBytes;
  const FileDescriptor probe(
      socket(found.gid.is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress address = socket_address(found.gid, 0, 0);
  if (!probe.is_open() || bind(probe.get(), address.get(), address.length) != 0) {
    const int error = errno;
    return {error, "cannot use " + text + ": " + std::strerror(error)};
  }
  local = found;
  return {};
}

// As in a network namespace that nobody has set up.
bool loopback_is_down(const Interfaces& interfaces) {
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 && (entry->ifa_flags & IFF_UP) == 0) return true;
  }
  return false;
}

std::string list_of_addresses(const Interfaces& interfaces) {
  std::string text;
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    Gid gid;
    if (!gid_of(entry->ifa_addr, gid)) continue;
    if (!text.empty()) text += ", ";
    text += format_gid(gid) + " (" + entry->ifa_name + ")";
  }
  return text.empty() ? "none" : text;
}

}  // namespace

bool parse_gid(const std::string& text, Gid& gid) {
  in_addr ipv4{};
  if (inet_pton(AF_INET, text.c_str(), &ipv4) == 1) {
    gid = Gid::from_ipv4(reinterpret_cast<const std::uint8_t*>(&ipv4));
    return true;
  }
  const std::string without_scope = text.substr(0, text.find('%'));
  return inet_pton(AF_INET6, without_scope.c_str(), gid.raw.data()) == 1;
}

std::string format_gid(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  if (gid.is_ipv4()) {
    inet_ntop(AF_INET, gid.ipv4(), text, sizeof text);
  } else {
    inet_ntop(AF_INET6, gid.raw.data(), text, sizeof text);
  }
  return text;
}

bool is_link_local(const Gid& gid) {
  if (gid.is_ipv4()) return gid.ipv4()[0] == 169 && gid.ipv4()[1] == 254;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool is_loopback(const Gid& gid) {
  if (gid.is_ipv4()) return gid.ipv4()[0] == 127;
  Gid one;
  one.raw[15] = 1;
  return gid == one;
}

SocketAddress socket_address(const Gid& gid, std::uint16_t port, unsigned scope) {
  SocketAddress address;
  if (gid.is_ipv4()) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, gid.ipv4(), sizeof in.sin_addr);
    std::memcpy(&address.storage, &in, sizeof in);
    address.length = sizeof in;
    return address;
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  std::memcpy(&in6.sin6_addr, gid.raw.data(), gid.raw.size());
  if (is_link_local(gid) || gid.is_multicast()) in6.sin6_scope_id = scope;
  std::memcpy(&address.storage, &in6, sizeof in6);
  address.length = sizeof in6;
  return address;
}

LinkError resolve_local_address(const std::string& text, LocalAddress& local) {
  const Interfaces interfaces = list_interfaces();
  if (!interfaces) return resolve_unlisted(text, local);
  Gid gid;
  if (!parse_gid(text, gid)) return resolve_interface(interfaces, text, local);
  const std::size_t scope = text.find('%');
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    if (!covers(*entry, gid)) continue;
    if (scope != std::string::npos && text.substr(scope + 1) != entry->ifa_name) continue;
    local = local_address(gid, entry->ifa_name);
    return {};
  }
  std::string message =
      text + " is not an address of this machine; it has " + list_of_addresses(interfaces);
  if (is_loopback(gid) && loopback_is_down(interfaces)) {
    message += "; the loopback interface is down: `ip link set lo up` brings it up";
  }
  return {EADDRNOTAVAIL, message};
}

AddressCondition condition_of(const LocalAddress& local) {
  const auto carries = [](unsigned flags) {
    return (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
  };
  const Interfaces interfaces = list_interfaces();
  if (!interfaces) return {};
  AddressCondition condition{false, false};
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    // Every interface is listed by its link-layer address, whether it has others or not.
    if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_PACKET) {
      const auto* link = reinterpret_cast<const sockaddr_ll*>(entry->ifa_addr);
      const bool ours = static_cast<unsigned>(link->sll_ifindex) == local.interface_index;
      if (ours && !condition.present) condition.link_up = carries(entry->ifa_flags);
      continue;
    }
    // The same link-local address may be on several interfaces; any other may have moved.
    if (!covers(*entry, local.gid)) continue;
    if (is_link_local(local.gid) && if_nametoindex(entry->ifa_name) != local.interface_index) {
      continue;
    }
    const unsigned index = if_nametoindex(entry->ifa_name);
    // Several may have it: then it has not moved.
    if (condition.present && condition.interface_index == local.interface_index) continue;
    condition = {true, carries(entry->ifa_flags), index, interface_mtu(entry->ifa_name)};
  }
  return condition;
}

Gid random_loopback_address(Random& random) {
  const std::uint8_t address[4] = {127, static_cast<std::uint8_t>(1 + random.below(254)),
                                   static_cast<std::uint8_t>(random.below(256)),
                                   static_cast<std::uint8_t>(1 + random.below(254))};
  return Gid::from_ipv4(address);
}

}  // namespace softhca
