#include "link/capture.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "wire/icrc.hpp"
#include "wire/ip.hpp"

namespace softhca {
namespace {

// pcapng (draft-ietf-opsawg-pcapng): block types and option codes.
constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr std::uint16_t kOptionEnd = 0;
constexpr std::uint16_t kOptionComment = 1;
constexpr std::uint16_t kOptionApplication = 4;     // shb_userappl
constexpr std::uint16_t kOptionInterfaceName = 2;   // if_name
constexpr std::uint16_t kOptionTimeResolution = 9;  // if_tsresol
constexpr std::uint16_t kOptionPacketFlags = 2;     // epb_flags
constexpr std::uint16_t kLinkTypeEthernet = 1;

constexpr std::size_t kFlushBytes = 1 << 18;
constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kMaxIpUdpBytes = 48;

// pcapng is written in the writer's byte order; the magic number tells which.
void put(std::vector<std::uint8_t>& out, const void* bytes, std::size_t count) {
  const auto* from = static_cast<const std::uint8_t*>(bytes);
  out.insert(out.end(), from, from + count);
}
void put_u16(std::vector<std::uint8_t>& out, std::uint16_t value) { put(out, &value, 2); }
void put_u32(std::vector<std::uint8_t>& out, std::uint32_t value) { put(out, &value, 4); }
void put_u64(std::vector<std::uint8_t>& out, std::uint64_t value) { put(out, &value, 8); }
void pad(std::vector<std::uint8_t>& out, std::size_t count) {
  out.insert(out.end(), (4 - count % 4) % 4, 0);
}
void put_option(std::vector<std::uint8_t>& out, std::uint16_t code, const void* bytes,
                std::size_t count) {
  put_u16(out, code);
  put_u16(out, static_cast<std::uint16_t>(count));
  put(out, bytes, count);
  pad(out, count);
}

// A block's length stands at both of its ends: begin_block() leaves room for the first.
std::size_t begin_block(std::vector<std::uint8_t>& out, std::uint32_t type) {
  const std::size_t start = out.size();
  put_u32(out, type);
  put_u32(out, 0);
  return start;
}
void end_block(std::vector<std::uint8_t>& out, std::size_t start) {
  const auto length = static_cast<std::uint32_t>(out.size() - start + 4);
  std::memcpy(out.data() + start + 4, &length, 4);
  put_u32(out, length);
}

// Locally administered, so that it is nobody's: made of the address's last bytes. Groups get the
// addresses that RFC 1112 and RFC 2464 give them.
void put_mac(const Gid& gid, std::uint8_t* out) {
  if (gid.is_multicast() && gid.is_ipv4()) {
    const std::uint8_t mac[6] = {
        0x01, 0x00, 0x5e, static_cast<std::uint8_t>(gid.raw[13] & 0x7f), gid.raw[14], gid.raw[15]};
    std::memcpy(out, mac, sizeof mac);
  } else if (gid.is_multicast()) {
    out[0] = out[1] = 0x33;
    std::memcpy(out + 2, gid.raw.data() + 12, 4);
  } else {
    out[0] = 0x02;
    out[1] = gid.is_ipv4() ? 0x00 : gid.raw[11];
    std::memcpy(out + 2, gid.raw.data() + 12, 4);
  }
}

// A peer's IPv4 identification and DF bit are hidden from a socket, but its ICRC tells them; with
// them in place, whoever reads the capture finds the ICRC good.
void restore_hidden_fields(Direction direction, const Datagram& datagram, Route& route,
                           bool& dont_fragment) {
  if (direction != Direction::RECEIVED || !route.source.is_ipv4()) return;
  const IcrcVerdict verdict = check_icrc(route, datagram.bytes, IcrcLevel::SOLVE);
  if (!verdict.good) return;
  route.identification = verdict.identification;
  dont_fragment = verdict.dont_fragment;
}

// The IPv4 header checksum is a ones' complement sum: taking the DF bit out of the header puts it
// into the checksum (RFC 1624).
void clear_dont_fragment(std::uint8_t* ipv4_header) {
  ipv4_header[6] = static_cast<std::uint8_t>(ipv4_header[6] & ~0x40);
  std::uint32_t sum = load_be16(ipv4_header + 10) + 0x4000u;
  sum = (sum & 0xffff) + (sum >> 16);
  store_be16(ipv4_header + 10, static_cast<std::uint16_t>(sum));
}

std::size_t put_headers(Direction direction, const Datagram& datagram, std::uint8_t* out) {
  Route route = datagram.route;
  bool dont_fragment = true;
  restore_hidden_fields(direction, datagram, route, dont_fragment);
  put_mac(route.destination, out);
  put_mac(route.source, out + 6);
  store_be16(out + 12, route.source.is_ipv4() ? 0x0800 : 0x86dd);
  const std::size_t ip_udp =
      encode_ip_udp(route, datagram.bytes.size(), ByteSpan(out + kEthernetBytes, kMaxIpUdpBytes));
  if (!dont_fragment) clear_dont_fragment(out + kEthernetBytes);
  // Readers take UDP without a checksum over IPv6 for damaged.
  if (!route.is_ipv4()) store_udp_checksum(ByteSpan(out + kEthernetBytes, ip_udp), datagram.bytes);
  return kEthernetBytes + ip_udp;
}

std::string comment_of(const PacketNote& note) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!text.empty()) text += ' ';
    text += part;
  };
  if (note.qpn != 0) {
    char qp[16];
    std::snprintf(qp, sizeof qp, "QP 0x%06x", note.qpn & 0xffffff);
    add(qp);
  }
  if (note.has_wr) add("wr_id " + std::to_string(note.wr_id));
  if (note.retransmitted) add("retransmitted");
  if (note.verdict != nullptr && note.verdict[0] != 0) add(std::string("dropped: ") + note.verdict);
  return text;
}

}  // namespace

// Before anything in it is touched: a second writer would empty what the first has written, and
// both would write over each other's packets from then on. Devices and pipes have no such places,
// and file systems without locks go without. Errno; 0 is success.
int Capture::claim(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return 0;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return EBUSY;
  return ftruncate(fd, 0) == 0 ? 0 : errno;
}

LinkError Capture::open(const std::string& path, Capture& capture) {
  Capture opened;
  opened.path_ = path;
  opened.file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  const int error = opened.file_.is_open() ? claim(opened.file_.get()) : errno;
  if (error != 0) {
    const char* const why = error == EBUSY ? "another adapter is writing it" : std::strerror(error);
    return {error, "cannot write the capture " + path + ": " + why};
  }
  opened.write_head();
  opened.flush();
  if (!opened.failure_.ok()) return opened.failure_;
  capture = std::move(opened);
  return {};
}

Capture::~Capture() { close(); }

void Capture::write_head() {
  std::size_t block = begin_block(buffer_, kSectionHeader);
  put_u32(buffer_, kByteOrderMagic);
  put_u16(buffer_, 1);
  put_u16(buffer_, 0);
  put_u64(buffer_, ~std::uint64_t{0});  // Section length: not known.
  put_option(buffer_, kOptionApplication, "softhca", 7);
  put_option(buffer_, kOptionEnd, nullptr, 0);
  end_block(buffer_, block);

  block = begin_block(buffer_, kInterfaceDescription);
  put_u16(buffer_, kLinkTypeEthernet);
  put_u16(buffer_, 0);
  put_u32(buffer_, 0);  // Snapshot length: packets are never cut.
  put_option(buffer_, kOptionInterfaceName, "softhca", 7);
  const std::uint8_t nanoseconds = 9;
  put_option(buffer_, kOptionTimeResolution, &nanoseconds, 1);
  put_option(buffer_, kOptionEnd, nullptr, 0);
  end_block(buffer_, block);
}

void Capture::write(Direction direction, const Datagram& datagram, const PacketNote& note,
                    std::uint64_t realtime_ns) {
  if (!file_.is_open()) return;
  std::uint8_t headers[kEthernetBytes + kMaxIpUdpBytes];
  const std::size_t header_bytes = put_headers(direction, datagram, headers);
  const std::size_t packet_bytes = header_bytes + datagram.bytes.size();
  const std::size_t block = begin_block(buffer_, kEnhancedPacket);
  put_u32(buffer_, 0);  // Interface.
  put_u32(buffer_, static_cast<std::uint32_t>(realtime_ns >> 32));
  put_u32(buffer_, static_cast<std::uint32_t>(realtime_ns));
  put_u32(buffer_, static_cast<std::uint32_t>(packet_bytes));
  put_u32(buffer_, static_cast<std::uint32_t>(packet_bytes));
  put(buffer_, headers, header_bytes);
  put(buffer_, datagram.bytes.data(), datagram.bytes.size());
  pad(buffer_, packet_bytes);
  const std::string comment = comment_of(note);
  if (!comment.empty()) put_option(buffer_, kOptionComment, comment.data(), comment.size());
  const auto flags = static_cast<std::uint32_t>(direction);
  put_option(buffer_, kOptionPacketFlags, &flags, sizeof flags);
  put_option(buffer_, kOptionEnd, nullptr, 0);
  end_block(buffer_, block);
  ++packets_;
  if (buffer_.size() >= kFlushBytes) flush();
}

void Capture::flush() {
  std::size_t written = 0;
  while (file_.is_open() && written < buffer_.size()) {
    const ssize_t count = ::write(file_.get(), buffer_.data() + written, buffer_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      failure_.error = errno;
      failure_.message = "the capture " + path_ + " ended early: " + std::strerror(failure_.error);
      let_go();
      break;
    }
    written += static_cast<std::size_t>(count);
  }
  buffer_.clear();
}

void Capture::close() {
  flush();
  let_go();
}

// Children of fork() have the file open too, and would go on claiming it.
void Capture::let_go() {
  if (file_.is_open()) flock(file_.get(), LOCK_UN);
  file_.reset();
}

void Capture::abandon() {
  buffer_.clear();
  file_.reset();
}

}  // namespace softhca
