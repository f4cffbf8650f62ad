#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "link/address.hpp"
#include "link/capture.hpp"
#include "tests/check.hpp"
#include "wire/icrc.hpp"
#include "wire/ip.hpp"

namespace softhca {
namespace {

using Bytes = std::vector<std::uint8_t>;

class TemporaryFile {
 public:
  TemporaryFile() { ::close(mkstemp(path_)); }
  ~TemporaryFile() { unlink(path_); }
  const char* path() const { return path_; }
  Bytes content() const {
    std::ifstream file(path_, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(file), {});
  }

 private:
  char path_[32] = "/tmp/softhca-capture-XXXXXX";
};

struct Block {
  std::uint32_t type = 0;
  Bytes body;
};

std::uint32_t load_u32(const Bytes& bytes, std::size_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Walks the blocks by their leading lengths and demands that the trailing ones agree.
std::vector<Block> blocks_of(const Bytes& file) {
  std::vector<Block> blocks;
  std::size_t at = 0;
  while (at + 12 <= file.size()) {
    const std::uint32_t length = load_u32(file, at + 4);
    CHECK(length >= 12 && length % 4 == 0 && at + length <= file.size());
    if (length < 12 || at + length > file.size()) break;
    CHECK_EQ(load_u32(file, at + length - 4), length);
    const auto start = file.begin() + static_cast<std::ptrdiff_t>(at);
    blocks.push_back({load_u32(file, at), Bytes(start + 8, start + length - 4)});
    at += length;
  }
  CHECK_EQ(at, file.size());
  return blocks;
}

Route route_between(const char* source, const char* destination) {
  Route route;
  parse_gid(source, route.source);
  parse_gid(destination, route.destination);
  route.udp_source_port = 0xc123;
  return route;
}

Bytes datagram_on(const Route& route, std::size_t payload_bytes) {
  Bytes bytes(12 + payload_bytes + 4, 0x5a);
  bytes[0] = 0x04;  // RC SEND Only.
  append_icrc(route, ByteSpan(bytes.data(), bytes.size() - 4));
  return bytes;
}

// The IP packet within an enhanced packet block.
ByteView ip_packet(const Block& block) {
  return ByteView(block.body.data() + 20 + 14, load_u32(block.body, 12) - 14);
}

bool holds(const Block& block, const std::string& text) {
  return std::string(block.body.begin(), block.body.end()).find(text) != std::string::npos;
}

TEST("link capture: packets lie in the file as on the wire, with comments and directions") {
  TemporaryFile file;
  const Route there = route_between("127.1.1.1", "127.2.2.2");
  const Route here = route_between("fd00::2", "fd00::1");
  const Bytes first = datagram_on(there, 4096), second = datagram_on(here, 5);
  Capture capture;
  CHECK(Capture::open(file.path(), capture).ok());
  capture.write(Direction::SENT, {there, first}, {0x12, true, 7, true, ""},
                1'700'000'000'123456789);
  capture.write(Direction::RECEIVED, {here, second}, {0, false, 0, false, "bad ICRC"}, 5);
  CHECK(capture.dirty());
  CHECK_EQ(capture.packets(), std::uint64_t{2});
  capture.close();
  const std::vector<Block> blocks = blocks_of(file.content());
  CHECK_EQ(blocks.size(), std::size_t{4});
  CHECK_EQ(blocks[0].type, 0x0a0d0d0au);
  CHECK_EQ(blocks[1].type, 1u);
  CHECK_EQ(blocks[2].type, 6u);
  CHECK(holds(blocks[2], "QP 0x000012 wr_id 7 retransmitted"));
  CHECK(holds(blocks[3], "dropped: bad ICRC"));
  const std::uint64_t time_ns =
      std::uint64_t{load_u32(blocks[2].body, 4)} << 32 | load_u32(blocks[2].body, 8);
  CHECK_EQ(time_ns, std::uint64_t{1'700'000'000'123456789});
  IpUdpView view;
  CHECK(parse_ip_udp(ip_packet(blocks[2]), view));
  CHECK(Bytes(view.datagram.begin(), view.datagram.end()) == first);
  CHECK(check_icrc(view.route, view.datagram, IcrcLevel::STRICT).good);
  CHECK(parse_ip_udp(ip_packet(blocks[3]), view));
  CHECK(Bytes(view.datagram.begin(), view.datagram.end()) == second);
}

TEST("link capture: a received packet gets back the identification that its ICRC tells") {
  TemporaryFile file;
  Route sent = route_between("127.1.1.1", "127.2.2.2");
  sent.identification = 0xbeef;
  const Bytes bytes = datagram_on(sent, 100);
  Route received = sent;
  received.identification = 0;
  Capture capture;
  CHECK(Capture::open(file.path(), capture).ok());
  capture.write(Direction::RECEIVED, {received, bytes}, {}, 1);
  capture.close();
  IpUdpView view;
  CHECK(parse_ip_udp(ip_packet(blocks_of(file.content()).at(2)), view));
  CHECK_EQ(view.route.identification, 0xbeef);
  CHECK(view.dont_fragment);
}

TEST("link capture: what cannot be written ends the capture and nothing else") {
  Capture capture;
  CHECK_EQ(Capture::open("/nonexistent/x.pcapng", capture).error, ENOENT);
  CHECK_EQ(Capture::open("/dev/full", capture).error, ENOSPC);
  CHECK(!capture.is_open());
  const Route route = route_between("127.1.1.1", "127.2.2.2");
  const Bytes bytes = datagram_on(route, 1);
  capture.write(Direction::SENT, {route, bytes}, {}, 1);
  CHECK_EQ(capture.packets(), std::uint64_t{0});
}

TEST("link capture: one file has one writer, and keeps what that one wrote") {
  TemporaryFile file;
  Capture first, second;
  CHECK(Capture::open(file.path(), first).ok());
  const Bytes head = file.content();
  CHECK_EQ(Capture::open(file.path(), second).error, EBUSY);
  CHECK(!second.is_open());
  CHECK(!head.empty() && file.content() == head);
  // A child that has the descriptor, too, and neither uses nor closes it.
  int wait[2];
  CHECK_EQ(pipe(wait), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    ::close(wait[1]);
    _exit(read(wait[0], &byte, 1) == 0 ? 0 : 1);
  }
  first.close();
  CHECK(Capture::open(file.path(), second).ok());
  ::close(wait[0]);
  ::close(wait[1]);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  second.close();
  // What has no places to write over may have any number of writers.
  CHECK(Capture::open("/dev/null", first).ok());
  CHECK(Capture::open("/dev/null", second).ok());
}

TEST("link capture: a child gives it up without writing what its parent will write") {
  TemporaryFile file;
  const Route route = route_between("127.1.1.1", "127.2.2.2");
  const Bytes bytes = datagram_on(route, 1);
  {
    Capture capture;
    CHECK(Capture::open(file.path(), capture).ok());
    capture.write(Direction::SENT, {route, bytes}, {}, 1);
    capture.abandon();
  }
  CHECK_EQ(blocks_of(file.content()).size(), std::size_t{2});
}

}  // namespace
}  // namespace softhca
