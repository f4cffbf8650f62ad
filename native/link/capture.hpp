// Writes what an adapter sends and receives as pcapng, with the Ethernet, IP and UDP headers that
// the kernel keeps from us.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "link/file_descriptor.hpp"
#include "link/link.hpp"

namespace softhca {

enum class Direction : std::uint8_t { RECEIVED = 1, SENT = 2 };  // As pcapng's epb_flags has it.

// What the adapter knows of a packet: it becomes the packet's comment.
struct PacketNote {
  std::uint32_t qpn = 0;  // Local QP, 0 if none.
  bool has_wr = false;
  std::uint64_t wr_id = 0;
  bool retransmitted = false;
  const char* verdict = "";  // Why it was dropped; empty if it was not.
};

class Capture {
 public:
  // Creates or empties `path` and writes the file's head. EBUSY: another capture is writing it.
  static LinkError open(const std::string& path, Capture& capture);

  Capture() = default;
  Capture(Capture&&) = default;
  Capture& operator=(Capture&&) = default;
  // Flushes, unless abandon() was called.
  ~Capture();

  bool is_open() const { return file_.is_open(); }
  // True while packets wait in memory for flush().
  bool dirty() const { return !buffer_.empty(); }
  // `realtime_ns` since the epoch. Nothing is ever cut short. Does nothing once the capture is
  // closed or has failed.
  void write(Direction direction, const Datagram& datagram, const PacketNote& note,
             std::uint64_t realtime_ns);
  void flush();
  void close();
  // Closes without writing what is in memory: a child of fork() would write it a second time.
  void abandon();

  // The error that ended the capture, if one did: a full disk stops the capture, not the adapter.
  const LinkError& failure() const { return failure_; }
  std::uint64_t packets() const { return packets_; }

 private:
  static int claim(int fd);
  void write_head();
  void let_go();

  FileDescriptor file_;
  std::string path_;
  std::vector<std::uint8_t> buffer_;
  LinkError failure_;
  std::uint64_t packets_ = 0;
};

}  // namespace softhca
