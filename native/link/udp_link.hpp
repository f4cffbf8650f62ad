// RoCEv2 over the kernel's UDP, without privilege: batches of datagrams from and to port 4791 of
// one address.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "link/address.hpp"
#include "link/file_descriptor.hpp"
#include "link/link.hpp"
#include "link/train_peers.hpp"

namespace softhca {

struct UdpOptions {
  // Numeric address or interface name; empty takes a free loopback address.
  std::string address;
  // Sending sockets, each with a port of its own: entropy for the network's load balancing.
  std::size_t source_port_count = 4;
  // Decides the ports and the loopback address that are tried first; 0 takes the system's entropy.
  std::uint64_t seed = 0;
  // Whether equal packets to one peer may leave as one message of UDP_SEGMENT, if it takes such.
  bool trains = true;
};

struct UdpCounters {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t send_refused = 0;  // The network said no (too long, unreachable): lost.
  std::uint64_t send_blocked = 0;  // Times that the socket's buffer was full.
  std::uint64_t trains_sent = 0;   // Messages of several datagrams (UDP_SEGMENT).
};

class UdpLink final : public Link {
 public:
  // EADDRINUSE: port 4791 of the address is taken; the message says by whom.
  // EADDRNOTAVAIL, ENODEV: see resolve_local_address().
  static LinkError open(const UdpOptions& options, std::unique_ptr<UdpLink>& link);
  ~UdpLink() override;

  const LocalAddress& local() const { return local_; }
  // Ports 0xC000 to 0xFFFF (IBTA Annex A17.4.5.2) that `Route::udp_source_port` may name. Peers of
  // our kind know us by them (own_ports.hpp).
  const std::vector<std::uint16_t>& source_ports() const { return source_ports_; }
  const UdpCounters& counters() const { return counters_; }
  // Datagrams that the kernel dropped because they were not fetched in time.
  std::uint64_t receive_overflows() const;

  // A route with another source address, or another family than this link's, is counted as refused.
  std::size_t send(std::span<const Datagram> datagrams) override;
  std::size_t receive(std::span<Datagram> datagrams) override;
  int arrival_fd() const override { return receive_socket_.get(); }
  int ready_fd() const override { return readiness_.get(); }
  bool blocked() const override { return blocked_socket_ >= 0; }
  int failure() const override { return failure_; }
  void lose(int error) override;
  LinkError join_group(const Gid& group) override;
  LinkError leave_group(const Gid& group) override;
  LinkError move_to(unsigned interface_index) override;
  void tell_fields(bool wanted) override;
  void numbers_packets(const Gid& peer) override { train_peers_.numbers_packets(peer); }
  void abandon() override;

 private:
  struct Group {
    Gid gid;
    std::size_t joins = 0;
    FileDescriptor socket;
  };
  struct ReceiveBatch;
  struct SendBatch;

  UdpLink();
  LinkError bind_address(const UdpOptions& options, std::uint64_t seed);
  LinkError open_send_sockets(const UdpOptions& options, std::uint64_t seed);
  LinkError watch(int fd);
  void ignore(int fd);
  void block_on(int fd);
  bool sendable(const Route& route) const;
  void expect_like(std::size_t arrived);
  std::size_t receive_from(int fd, std::size_t first_slot, std::size_t most);
  bool is_fatal(int error);
  static int hand_over(int fd, mmsghdr* messages, std::size_t count);
  std::size_t send_run(int fd, std::span<const Datagram> run);
  std::size_t prepare_run(int fd, std::span<const Datagram> run, bool in_trains, bool flow_labels);
  int socket_of(std::uint16_t source_port) const;

  LocalAddress local_;
  // An epoll set of those of multicast groups, and of the one that is blocked: each datagram of a
  // socket would pass it, waited for or not.
  FileDescriptor readiness_;
  FileDescriptor receive_socket_;
  std::list<Group> groups_;
  std::vector<std::uint16_t> source_ports_;
  std::vector<FileDescriptor> send_sockets_;  // Parallel to source_ports_.
  int blocked_socket_ = -1;                   // Sending socket whose buffer is full.
  std::size_t expected_messages_ = 1;         // That the next receive() finds.
  bool was_full_ = false;                     // The last one found as many.
  int failure_ = 0;
  bool flow_labels_ = true;  // The kernel lets us choose flow labels.
  int trains_refused_ = 0;   // Times that the kernel sent the packets of a train only one by one.
  TrainPeers train_peers_;
  std::vector<int> checksummed_sockets_;
  UdpCounters counters_;
  std::unique_ptr<ReceiveBatch> receive_batch_;
  std::unique_ptr<SendBatch> send_batch_;
};

}  // namespace softhca
