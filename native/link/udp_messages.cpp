#include "link/udp_messages.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

#include "wire/packet.hpp"

namespace softhca {
namespace {

constexpr std::uint8_t kDefaultHopLimit = 64;
constexpr int kIpv6FlowInfo = 11;
constexpr std::uint32_t kFlowLabelMask = 0xfffff;

// Absent from the C library's headers of this age.
constexpr int kUdpSegment = 103;
constexpr int kUdpGro = 104;

// What one UDP packet holds, over IPv4 as over IPv6.
constexpr std::size_t kMaxTrainBytes = 65535 - 20 - 8;
constexpr std::size_t kMaxReceivedBytes = 65536;
// The slots do not begin at the same place of a page, which caches would hold in one set.
constexpr std::size_t kSlotBytes = kMaxReceivedBytes + 320;

template <class Value>
void append_control(msghdr& header, int level, int type, Value value) {
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

std::size_t train_length(std::span<const Datagram> datagrams) {
  const Datagram& first = datagrams.front();
  const std::size_t most =
      std::min({datagrams.size(), std::size_t{kMaxTrainPackets},
                kMaxTrainBytes / std::max<std::size_t>(first.bytes.size(), 1)});
  std::size_t count = 1;
  while (count < most && datagrams[count].bytes.size() <= first.bytes.size() &&
         datagrams[count].route == first.route) {
    ++count;
    if (datagrams[count - 1].bytes.size() < first.bytes.size()) break;
  }
  return count;
}

SendMessages::SendMessages() {
  for (std::size_t i = 0; i < kLinkBatch; ++i) {
    msghdr& header = messages_[i].msg_hdr;
    header.msg_name = &names_[i].storage;
    header.msg_control = controls_[i].bytes;
  }
}

void SendMessages::prepare(std::size_t index, std::span<const Datagram> train, unsigned scope,
                           bool flow_label) {
  const Route& route = train.front().route;
  msghdr& header = messages_[index].msg_hdr;
  counts_[index] = train.size();
  const bool ipv4 = route.destination.is_ipv4();
  name(index, {route.destination, route.udp_destination_port, scope,
               !ipv4 && flow_label ? route.flow_label & kFlowLabelMask : 0});
  header.msg_namelen = names_[index].length;
  header.msg_controllen = 0;
  if (route.traffic_class != 0) {
    append_control(header, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS,
                   int{route.traffic_class});
  }
  // A packet with hop limit 0 would not leave; the kernel's verbs take the route's default for it.
  if (route.hop_limit != kDefaultHopLimit && route.hop_limit != 0) {
    append_control(header, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_HOPLIMIT,
                   int{route.hop_limit});
  }
  append_train(header, train);
}

// Most messages go where the last one in this place went.
void SendMessages::name(std::size_t index, const Addressee& to) {
  if (named_[index] == to) return;
  named_[index] = to;
  names_[index] = socket_address(to.gid, to.port, to.scope);
  if (to.flow_label != 0) {
    reinterpret_cast<sockaddr_in6*>(names_[index].get())->sin6_flowinfo = htonl(to.flow_label);
  }
}

void SendMessages::restore() {
  for (const Changed& changed : std::span(changed_).first(changed_count_)) {
    store_be32(changed.icrc, load_be32(changed.icrc) ^ changed.by);
  }
  changed_count_ = 0;
}

// Datagrams that lie one behind the other are handed over as one run of bytes.
void SendMessages::append(msghdr& header, const std::uint8_t* bytes, std::size_t count) {
  if (header.msg_iovlen > 0) {
    iovec& last = vectors_[vectors_used_ - 1];
    if (static_cast<std::uint8_t*>(last.iov_base) + last.iov_len == bytes) {
      last.iov_len += count;
      return;
    }
  }
  vectors_[vectors_used_++] = {const_cast<std::uint8_t*>(bytes), count};
  ++header.msg_iovlen;
}

void SendMessages::append_train(msghdr& header, std::span<const Datagram> train) {
  header.msg_iov = &vectors_[vectors_used_];
  header.msg_iovlen = 0;
  const bool renumbered = train.size() > 1 && train.front().route.is_ipv4();
  for (const Datagram& datagram : train.first(renumbered ? 1 : train.size())) {
    append(header, datagram.bytes.data(), datagram.bytes.size());
  }
  if (renumbered) append_renumbered(header, train);
  if (train.size() > 1) {
    append_control(header, SOL_UDP, kUdpSegment,
                   static_cast<std::uint16_t>(train.front().bytes.size()));
  }
}

// The kernel gives the packets of a train identifications from 0, and their ICRCs cover them. A
// datagram that lies right behind the one before it is nobody else's at the same time, and is
// changed where it is.
void SendMessages::append_renumbered(msghdr& header, std::span<const Datagram> train) {
  for (std::size_t i = 1; i < train.size(); ++i) {
    const ByteView bytes = train[i].bytes;
    const std::size_t covered = bytes.size() - kIcrcBytes;
    // As the wire has it.
    const std::uint32_t by = __builtin_bswap32(changes_.of(bytes.size(), i));
    const ByteView before = train[i - 1].bytes;
    if (before.data() + before.size() == bytes.data()) {
      auto* const icrc = const_cast<std::uint8_t*>(bytes.data() + covered);
      store_be32(icrc, load_be32(icrc) ^ by);
      changed_[changed_count_++] = {icrc, by};
      append(header, bytes.data(), bytes.size());
      continue;
    }
    Icrc& icrc = icrcs_[icrcs_used_++];
    store_be32(icrc.data(), load_be32(bytes.data() + covered) ^ by);
    append(header, bytes.data(), covered);
    append(header, icrc.data(), icrc.size());
  }
}

ReceiveMessages::ReceiveMessages()
    : bytes_(new std::uint8_t[kLinkBatch * kSlotBytes]) {  // Not zeroed, so not yet there.
  for (std::size_t i = 0; i < kLinkBatch; ++i) {
    msghdr& header = messages_[i].msg_hdr;
    vectors_[i] = {bytes_.get() + i * kSlotBytes, kMaxReceivedBytes};
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

void ReceiveMessages::filled(std::size_t count, const Gid& local) {
  filled_ = count;
  local_ = local;
  slot_ = 0;
  if (!empty()) open_slot();
}

void ReceiveMessages::open_slot() {
  route_ = {};
  route_.destination = local_;
  place_ = 0;
  read_peer(names_[slot_], route_);
  left_ = ByteView(static_cast<const std::uint8_t*>(vectors_[slot_].iov_base),
                   messages_[slot_].msg_len);
  segment_bytes_ = left_.size();
  const msghdr& header = messages_[slot_].msg_hdr;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&header), control)) {
    if (control->cmsg_level == IPPROTO_IP) read_ipv4_control(control, route_);
    if (control->cmsg_level == IPPROTO_IPV6) read_ipv6_control(control, route_);
    if (control->cmsg_level == SOL_UDP && control->cmsg_type == kUdpGro) {
      segment_bytes_ = std::min(segment_bytes_, static_cast<std::size_t>(control_int(control)));
    }
  }
}

std::size_t ReceiveMessages::take(std::span<Datagram> datagrams) {
  std::size_t count = 0;
  while (count < datagrams.size() && !empty()) {
    const std::size_t bytes = std::min(segment_bytes_, left_.size());
    Datagram& datagram = datagrams[count++];
    datagram = {route_, left_.first(bytes)};
    left_ = left_.subspan(bytes);
    // The place in a train of ours; a foreign one is solved for. Not written to the route that is
    // copied, since a copy would wait for it.
    if (route_.is_ipv4()) datagram.route.identification = place_++;
    if (left_.empty() && ++slot_ < filled_) open_slot();
  }
  return count;
}

}  // namespace softhca
