#include "link/udp_link.hpp"

#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "link/udp_messages.hpp"
#include "link/udp_socket.hpp"
#include "vocabulary/own_ports.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

constexpr std::size_t kSourcePortSpan = 0x4000;
// Random tries before giving up: with half of the choices taken, 64 fail once in 2^64.
constexpr int kTries = 64;
// A kernel or path that refused so many trains gets none any more.
constexpr int kRefusalsToStop = 8;

std::uint64_t system_entropy() {
  std::uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed)) {
    seed = reinterpret_cast<std::uintptr_t>(&seed);
  }
  return seed;
}

}  // namespace

struct UdpLink::ReceiveBatch : ReceiveMessages {};
struct UdpLink::SendBatch : SendMessages {};

UdpLink::UdpLink()
    : receive_batch_(std::make_unique<ReceiveBatch>()),
      send_batch_(std::make_unique<SendBatch>()) {}
UdpLink::~UdpLink() = default;

LinkError UdpLink::open(const UdpOptions& options, std::unique_ptr<UdpLink>& link) {
  std::unique_ptr<UdpLink> opened(new UdpLink);
  const std::uint64_t seed = options.seed != 0 ? options.seed : system_entropy();
  opened->readiness_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!opened->readiness_.is_open()) {
    const int error = errno;
    return {error, std::string("cannot make an epoll set: ") + std::strerror(error)};
  }
  if (!options.trains) opened->trains_refused_ = kRefusalsToStop;
  LinkError error = opened->bind_address(options, seed);
  if (!error.ok()) return error;
  error = opened->open_send_sockets(options, seed);
  if (!error.ok()) return error;
  link = std::move(opened);
  return {};
}

LinkError UdpLink::bind_address(const UdpOptions& options, std::uint64_t seed) {
  LinkError error;
  if (!options.address.empty()) {
    error = resolve_local_address(options.address, local_);
    if (error.ok()) error = open_receive_socket(local_, receive_socket_);
  } else {
    error = resolve_local_address("127.0.0.1", local_);
    if (!error.ok()) return error;
    Random random(seed);
    for (int i = 0; i < kTries; ++i) {
      local_.gid = random_loopback_address(random);
      error = open_receive_socket(local_, receive_socket_);
      if (error.error != EADDRINUSE) break;
    }
  }
  return error;
}

// Ports by which peers of our kind know us, in random order; where they are taken, any.
LinkError UdpLink::open_send_sockets(const UdpOptions& options, std::uint64_t seed) {
  Random random(~seed);
  std::array<std::uint16_t, kOwnPorts> own;
  for (unsigned place = 0; place < kOwnPorts; ++place) {
    const auto before = random.below(place + 1);
    own[place] = own[before];
    own[before] = own_port(local_.gid, place);
  }
  std::size_t tried = 0;
  const std::size_t count = std::max<std::size_t>(1, options.source_port_count);
  for (std::size_t i = 0; i < count; ++i) {
    LinkError error;
    for (int tries = 0; tries < kTries; ++tries) {
      const auto any = static_cast<std::uint16_t>(kFirstSourcePort + random.below(kSourcePortSpan));
      const std::uint16_t port = tried < own.size() ? own[tried++] : any;
      FileDescriptor socket;
      error = open_send_socket(local_, port, socket);
      if (error.error == EADDRINUSE) continue;
      if (!error.ok()) return error;
      source_ports_.push_back(port);
      send_sockets_.push_back(std::move(socket));
      break;
    }
    if (!error.ok()) return error;
  }
  return {};
}

LinkError UdpLink::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_ctl(readiness_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  const int error = errno;
  return {error, std::string("cannot watch a socket: ") + std::strerror(error)};
}

// Before a socket is closed: while a child of fork() has a copy, it would stay in the set.
void UdpLink::ignore(int fd) { epoll_ctl(readiness_.get(), EPOLL_CTL_DEL, fd, nullptr); }

// Waits for room in `fd`'s buffer (-1: for none). Only then is it in the set, which would hear of
// each datagram that has left.
void UdpLink::block_on(int fd) {
  if (fd == blocked_socket_) return;
  if (blocked_socket_ >= 0) ignore(blocked_socket_);
  blocked_socket_ = fd;
  epoll_event event{};
  event.events = EPOLLOUT;
  if (fd >= 0) epoll_ctl(readiness_.get(), EPOLL_CTL_ADD, fd, &event);
}

std::uint64_t UdpLink::receive_overflows() const {
  std::uint64_t total = 0;
  const auto add = [&total](int fd) {
    std::uint32_t memory[SK_MEMINFO_VARS] = {};
    socklen_t length = sizeof memory;
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &length) == 0) {
      total += memory[SK_MEMINFO_DROPS];
    }
  };
  add(receive_socket_.get());
  for (const Group& group : groups_) add(group.socket.get());
  return total;
}

int UdpLink::socket_of(std::uint16_t source_port) const {
  const auto found = std::find(source_ports_.begin(), source_ports_.end(), source_port);
  if (found == source_ports_.end()) return -1;
  return send_sockets_[static_cast<std::size_t>(found - source_ports_.begin())].get();
}

bool UdpLink::sendable(const Route& route) const {
  return route.source == local_.gid && route.destination.is_ipv4() == local_.gid.is_ipv4() &&
         route.udp_destination_port == kRoceUdpPort && socket_of(route.udp_source_port) >= 0;
}

std::size_t UdpLink::send(std::span<const Datagram> datagrams) {
  if (failure_ != 0) return datagrams.size();
  std::size_t taken = 0;
  while (taken < datagrams.size()) {
    const Route& first = datagrams[taken].route;
    if (!sendable(first)) {
      ++counters_.send_refused;
      ++taken;
      continue;
    }
    // One call sends from one socket: a run of datagrams with the same source port.
    std::size_t end = taken + 1;
    const auto goes_along = [&](const Route& route) {
      return route == first || (sendable(route) && route.udp_source_port == first.udp_source_port);
    };
    while (end < datagrams.size() && end - taken < kLinkBatch && goes_along(datagrams[end].route)) {
      ++end;
    }
    const int fd = socket_of(first.udp_source_port);
    const std::size_t sent = send_run(fd, datagrams.subspan(taken, end - taken));
    if (failure_ != 0) return datagrams.size();
    taken += sent;
    if (taken < end) {
      ++counters_.send_blocked;
      block_on(fd);
      return taken;
    }
  }
  block_on(-1);
  return taken;
}

// Networks come back, sockets do not: what ends a link is a descriptor that is no socket of ours
// any more, because somebody in the process closed it.
bool UdpLink::is_fatal(int error) {
  if (error != EBADF && error != ENOTSOCK) return false;
  lose(error);
  return true;
}

// The numbers may be other files' by now: none is touched again, not even to close it.
void UdpLink::lose(int error) {
  failure_ = error;
  blocked_socket_ = -1;
  readiness_.release();
  receive_socket_.release();
  for (Group& group : groups_) group.socket.release();
  for (FileDescriptor& socket : send_sockets_) socket.release();
}

// Describes `run` as messages, and returns how many.
std::size_t UdpLink::prepare_run(int fd, std::span<const Datagram> run, bool in_trains,
                                 bool flow_labels) {
  send_batch_->begin();
  std::size_t messages = 0;
  bool has_train = false;
  while (!run.empty()) {
    const bool may_be_train =
        in_trains && run.size() > 1 && train_peers_.take(run.front().route.destination);
    const std::size_t count = may_be_train ? train_length(run) : 1;
    has_train |= count > 1;
    send_batch_->prepare(messages++, run.first(count), local_.interface_index, flow_labels);
    run = run.subspan(count);
  }
  // A socket that sends trains must be willing to make checksums. (The device makes them.)
  if (has_train && local_.gid.is_ipv4() &&
      std::find(checksummed_sockets_.begin(), checksummed_sockets_.end(), fd) ==
          checksummed_sockets_.end()) {
    checksummed_sockets_.push_back(fd);
    allow_checksums(fd);
  }
  return messages;
}

int UdpLink::hand_over(int fd, mmsghdr* messages, std::size_t count) {
  if (count > 1) return sendmmsg(fd, messages, static_cast<unsigned>(count), MSG_DONTWAIT);
  const msghdr& header = messages->msg_hdr;
  // What needs no description need not have the kernel fetch one.
  const bool is_plain = header.msg_controllen == 0 && header.msg_iovlen == 1;
  const ssize_t sent =
      is_plain ? sendto(fd, header.msg_iov->iov_base, header.msg_iov->iov_len, MSG_DONTWAIT,
                        static_cast<const sockaddr*>(header.msg_name), header.msg_namelen)
               : sendmsg(fd, &header, MSG_DONTWAIT);
  return sent < 0 ? -1 : 1;
}

// Stops short only if the socket's buffer is full.
std::size_t UdpLink::send_run(int fd, std::span<const Datagram> run) {
  bool in_trains = trains_refused_ < kRefusalsToStop;
  bool suspected = false;        // A train was just refused.
  bool label_suspected = false;  // So was one with a flow label, and goes without.
  std::size_t taken = 0;
  std::size_t sent = 0;
  std::size_t messages = prepare_run(fd, run, in_trains, flow_labels_);
  const auto prepare_rest = [&] {
    send_batch_->restore();
    messages = prepare_run(fd, run.subspan(taken), in_trains, flow_labels_ && !label_suspected);
    sent = 0;
  };
  while (sent < messages) {
    const int accepted = hand_over(fd, send_batch_->message(sent), messages - sent);
    // Alone, the first of a train leaves where the train did not: it is trains that are refused. A
    // route that is missing or an interface that is down refuses both.
    if (accepted > 0 && std::exchange(suspected, false)) ++trains_refused_;
    // As with flow labels: somebody of this namespace holds them for himself alone.
    if (accepted > 0 && std::exchange(label_suspected, false)) flow_labels_ = false;
    for (int i = 0; i < accepted; ++i) {
      const std::size_t count = send_batch_->count(sent++);
      counters_.sent += count;
      counters_.trains_sent += count > 1 ? 1 : 0;
      taken += count;
    }
    if (accepted > 0 || errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) break;
    if (is_fatal(errno)) return run.size();
    const std::size_t count = send_batch_->count(sent);
    if (count > 1 && errno != ECONNREFUSED) {
      // A path or device that takes no trains, or another fault, which shows without them.
      in_trains = false;
      suspected = true;
      prepare_rest();
      continue;
    }
    suspected = false;
    const bool is_labelled = flow_labels_ && !label_suspected && run[taken].route.flow_label != 0;
    if (errno == EINVAL && is_labelled) {
      label_suspected = true;
      prepare_rest();
      continue;
    }
    // What is left concerns the datagram, or an earlier one (ECONNREFUSED): the network lost it.
    counters_.send_refused += count;
    taken += count;
    ++sent;
    if (std::exchange(label_suspected, false)) prepare_rest();
  }
  send_batch_->restore();
  return taken;
}

std::size_t UdpLink::receive(std::span<Datagram> datagrams) {
  if (failure_ != 0) return 0;
  if (receive_batch_->empty()) {
    if (!groups_.empty()) expected_messages_ = std::min(expected_messages_, kLinkBatch / 2);
    std::size_t slots = receive_from(receive_socket_.get(), 0, expected_messages_);
    expect_like(slots);
    for (const Group& group : groups_) {
      slots += receive_from(group.socket.get(), slots, kLinkBatch - slots);
    }
    // Each is the first to find room in its turn.
    if (!groups_.empty()) groups_.splice(groups_.end(), groups_, groups_.begin());
    receive_batch_->filled(slots, local_.gid);
  }
  const std::size_t count = receive_batch_->take(datagrams);
  for (const Datagram& datagram : datagrams.first(count)) train_peers_.heard(datagram.route);
  counters_.received += count;
  return count;
}

// As many as came may come again, and more where twice in a row there may have been more.
void UdpLink::expect_like(std::size_t arrived) {
  const bool full = arrived == expected_messages_;
  if (full && was_full_) {
    expected_messages_ = std::min(2 * expected_messages_, kLinkBatch);
  } else if (!full) {
    expected_messages_ = std::max<std::size_t>(arrived, 1);
  }
  was_full_ = full;
}

// Fills up to `most` slots from `first_slot`; returns how many. Looking for one more than there
// are costs as much as fetching half a message.
std::size_t UdpLink::receive_from(int fd, std::size_t first_slot, std::size_t most) {
  if (most == 0) return 0;
  receive_batch_->prepare(first_slot, most);
  mmsghdr* const first = receive_batch_->message(first_slot);
  long arrived = 0;
  do {
    if (most > 1) {
      arrived = recvmmsg(fd, first, static_cast<unsigned>(most), MSG_DONTWAIT, nullptr);
    } else if (const ssize_t bytes = recvmsg(fd, &first->msg_hdr, MSG_DONTWAIT); bytes >= 0) {
      first->msg_len = static_cast<unsigned>(bytes);
      arrived = 1;
    } else {
      arrived = -1;
    }
  } while (arrived < 0 && errno == EINTR);
  if (arrived < 0 && is_fatal(errno)) return 0;
  // Any other error tells of an earlier datagram's fate, which the transport finds out by itself.
  return arrived > 0 ? static_cast<std::size_t>(arrived) : 0;
}

LinkError UdpLink::join_group(const Gid& group) {
  for (Group& joined : groups_) {
    if (joined.gid != group) continue;
    ++joined.joins;
    return {};
  }
  if (!group.is_multicast() || group.is_ipv4() != local_.gid.is_ipv4()) {
    return {EINVAL, format_gid(group) + " is not a multicast group of " + format_gid(local_.gid) +
                        "'s address family"};
  }
  Group joining{group, 1, FileDescriptor()};
  LinkError error = open_group_socket(local_, group, joining.socket);
  if (error.ok()) error = watch(joining.socket.get());
  if (error.ok()) groups_.push_back(std::move(joining));
  return error;
}

LinkError UdpLink::leave_group(const Gid& group) {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&group](const Group& joined) { return joined.gid == group; });
  if (found == groups_.end()) return {EINVAL, "group " + format_gid(group) + " was not joined"};
  if (--found->joins == 0) {
    ignore(found->socket.get());
    groups_.erase(found);  // Closing the socket leaves the group.
  }
  return {};
}

// Memberships went with the interface, or lead to one where nobody sends to this address any more.
LinkError UdpLink::move_to(unsigned interface_index) {
  LocalAddress there = local_;
  there.interface_index = interface_index;
  for (const FileDescriptor& socket : send_sockets_) {
    const LinkError error = send_groups_to(there, socket.get());
    if (!error.ok()) return error;
  }
  for (Group& group : groups_) {
    FileDescriptor socket;
    LinkError error = open_group_socket(there, group.gid, socket);
    if (error.ok()) error = watch(socket.get());
    if (!error.ok()) return error;
    ignore(group.socket.get());
    group.socket = std::move(socket);
  }
  local_ = there;
  return {};
}

// Of groups they are told always: only UD queue pairs hear them.
void UdpLink::tell_fields(bool wanted) {
  if (failure_ != 0) return;
  const LinkError error = ask_for_fields(receive_socket_.get(), local_.gid.is_ipv4(), wanted);
  if (!error.ok()) is_fatal(error.error);
}

void UdpLink::abandon() {
  // Closing alone: a child's epoll_ctl() would change the set that it shares with its parent.
  readiness_.reset();
  receive_socket_.reset();
  for (Group& group : groups_) group.socket.reset();
  for (FileDescriptor& socket : send_sockets_) socket.reset();
}

}  // namespace softhca
