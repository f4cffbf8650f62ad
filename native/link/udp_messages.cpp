#include "link/udp_messages.hpp"

#include <netinet/in.h>

#include <cstring>

namespace softhca {
namespace {

constexpr std::uint8_t kDefaultHopLimit = 64;
constexpr int kIpv6FlowInfo = 11;
constexpr std::uint32_t kFlowLabelMask = 0xfffff;

void append_control(msghdr& header, int level, int type, int value) {
  auto* at = reinterpret_cast<cmsghdr*>(static_cast<std::uint8_t*>(header.msg_control) +
                                        header.msg_controllen);
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(at), &value, sizeof value);
  header.msg_controllen += CMSG_SPACE(sizeof value);
}

int control_int(const cmsghdr* control) {
  int value = 0;
  std::memcpy(&value, CMSG_DATA(control), sizeof value);
  return value;
}

void read_ipv4_control(const cmsghdr* control, Route& route) {
  switch (control->cmsg_type) {
    case IP_PKTINFO: {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(control), sizeof info);
      route.destination = Gid::from_ipv4(reinterpret_cast<const std::uint8_t*>(&info.ipi_addr));
      break;
    }
    case IP_TOS:
      route.traffic_class = *CMSG_DATA(control);  // One byte, unlike every other one.
      break;
    case IP_TTL:
      route.hop_limit = static_cast<std::uint8_t>(control_int(control));
      break;
    default:
      break;
  }
}

void read_ipv6_control(const cmsghdr* control, Route& route) {
  switch (control->cmsg_type) {
    case IPV6_PKTINFO: {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(control), sizeof info);
      std::memcpy(route.destination.raw.data(), &info.ipi6_addr, route.destination.raw.size());
      break;
    }
    case IPV6_TCLASS:
      route.traffic_class = static_cast<std::uint8_t>(control_int(control));
      break;
    case IPV6_HOPLIMIT:
      route.hop_limit = static_cast<std::uint8_t>(control_int(control));
      break;
    case kIpv6FlowInfo:
      route.flow_label = ntohl(static_cast<std::uint32_t>(control_int(control))) & kFlowLabelMask;
      break;
    default:
      break;
  }
}

void read_peer(const SocketAddress& name, Route& route) {
  if (name.storage.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &name.storage, sizeof in);
    route.source = Gid::from_ipv4(reinterpret_cast<const std::uint8_t*>(&in.sin_addr));
    route.udp_source_port = ntohs(in.sin_port);
    return;
  }
  sockaddr_in6 in6;
  std::memcpy(&in6, &name.storage, sizeof in6);
  std::memcpy(route.source.raw.data(), &in6.sin6_addr, route.source.raw.size());
  route.udp_source_port = ntohs(in6.sin6_port);
}

}  // namespace

SendMessages::SendMessages() {
  for (std::size_t i = 0; i < kLinkBatch; ++i) {
    msghdr& header = messages_[i].msg_hdr;
    header.msg_iov = &vectors_[i];
    header.msg_iovlen = 1;
    header.msg_name = &names_[i].storage;
    header.msg_control = controls_[i].bytes;
  }
}

void SendMessages::prepare(std::size_t index, const Datagram& datagram, unsigned scope,
                           bool flow_label) {
  const Route& route = datagram.route;
  msghdr& header = messages_[index].msg_hdr;
  vectors_[index] = {const_cast<std::uint8_t*>(datagram.bytes.data()), datagram.bytes.size()};
  names_[index] = socket_address(route.destination, route.udp_destination_port, scope);
  header.msg_namelen = names_[index].length;
  header.msg_controllen = 0;
  const bool ipv4 = route.destination.is_ipv4();
  if (!ipv4 && flow_label) {
    reinterpret_cast<sockaddr_in6*>(names_[index].get())->sin6_flowinfo =
        htonl(route.flow_label & kFlowLabelMask);
  }
  if (route.traffic_class != 0) {
    append_control(header, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS,
                   route.traffic_class);
  }
  // A packet with hop limit 0 would not leave; the kernel's verbs take the route's default for it.
  if (route.hop_limit != kDefaultHopLimit && route.hop_limit != 0) {
    append_control(header, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_HOPLIMIT,
                   route.hop_limit);
  }
}

ReceiveMessages::ReceiveMessages()
    : bytes_(std::make_unique<std::uint8_t[]>(kLinkBatch * kDatagramBufferBytes)) {
  for (std::size_t i = 0; i < kLinkBatch; ++i) {
    msghdr& header = messages_[i].msg_hdr;
    vectors_[i] = {bytes_.get() + i * kDatagramBufferBytes, kDatagramBufferBytes};
    header.msg_iov = &vectors_[i];
    header.msg_iovlen = 1;
    header.msg_name = &names_[i].storage;
    header.msg_control = controls_[i].bytes;
  }
}

void ReceiveMessages::prepare(std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    msghdr& header = messages_[i].msg_hdr;
    header.msg_namelen = sizeof names_[i].storage;
    header.msg_controllen = sizeof controls_[i].bytes;
    header.msg_flags = 0;
  }
}

Datagram ReceiveMessages::datagram(std::size_t index, const Gid& local) const {
  Datagram datagram;
  datagram.route.destination = local;
  read_peer(names_[index], datagram.route);
  const msghdr& header = messages_[index].msg_hdr;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&header), control)) {
    if (control->cmsg_level == IPPROTO_IP) read_ipv4_control(control, datagram.route);
    if (control->cmsg_level == IPPROTO_IPV6) read_ipv6_control(control, datagram.route);
  }
  datagram.bytes = ByteView(static_cast<const std::uint8_t*>(vectors_[index].iov_base),
                            messages_[index].msg_len);
  return datagram;
}

}  // namespace softhca
