// How neighbours meet: who knocks at whose door, and what both say there.

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "neighbour/barrier.hpp"
#include "neighbour/fair_share.hpp"
#include "neighbour/local_name.hpp"
#include "neighbour/neighbourhood.hpp"
#include "neighbour/peer_memory.hpp"
#include "neighbour/strangers_files.hpp"

namespace softhca {
namespace {

// A neighbour that did not answer is not asked again for so long.
constexpr std::uint64_t kSilenceNs = 1'000'000'000;
// Anybody may knock, and as fast as guests are let in. Fewer than are heard at once.
constexpr int kGuestsAtOnce = 8;
// Each holds a descriptor. Who is one says so at once.
constexpr std::size_t kMostGuests = 64;

std::uint64_t clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// A signal that this thread handles meanwhile does not end the wait.
bool is_readable_within(int fd, int most_ms) {
  const std::uint64_t end_ns = clock_ns() + static_cast<std::uint64_t>(most_ms) * 1'000'000u;
  pollfd awaited{fd, POLLIN, 0};
  for (int left_ms = most_ms; left_ms >= 0;) {
    const int ready = poll(&awaited, 1, left_ms);
    if (ready >= 0 || errno != EINTR) return ready > 0;
    const std::uint64_t now_ns = clock_ns();
    left_ms = now_ns < end_ns ? static_cast<int>((end_ns - now_ns) / 1'000'000u) : -1;
  }
  return false;
}

// What rings is written to while the adapter is locked: it must neither wait nor raise a signal, as
// a pipe would. Of what has no type, eventfd alone can be written to like that.
bool is_bell(int fd) {
  struct statx status;
  const int flags = fcntl(fd, F_GETFL);
  // A file system that is a program is not asked.
  return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0 &&
         (status.stx_mode & S_IFMT) == 0 && flags >= 0 && (flags & O_NONBLOCK) != 0;
}

bool are_bells(std::span<const FileDescriptor> files) {
  return std::ranges::all_of(files, [](const FileDescriptor& one) { return is_bell(one.get()); });
}

FileDescriptor process_descriptor(pid_t pid) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

NeighbourMessage Neighbourhood::card(MessageKind kind) const {
  NeighbourMessage message;
  message.kind = kind;
  message.segment_bytes = sizeof(SegmentLayout);
  message.gid = own_;
  message.token_address = reinterpret_cast<std::uintptr_t>(&token_);
  message.token = token_;
  message.process = static_cast<std::uint64_t>(getpid());
  return message;
}

// Who has it can have us wait when we hear it, and others when they ring it.
std::vector<int> Neighbourhood::bells_for(bool is_near) const {
  return is_near ? std::vector<int>{bell_.get()} : std::vector<int>{};
}

bool Neighbourhood::can_read(pid_t pid, const NeighbourMessage& message) const {
  if (pid == getpid()) return true;
  std::uint8_t read[sizeof message.token];
  PeerMemory memory(pid);
  return memory.copy_in(message.token_address, read) &&
         std::memcmp(read, &message.token, sizeof read) == 0;
}

void Neighbourhood::meet(const Gid& gid, int answer_ms) {
  if (gid == own_) return;
  const std::lock_guard meeting_one(meeting_);
  if (!readiness_.is_open()) return;  // It is closed, or lost.
  {
    const std::lock_guard lock(mutex_);
    if (path_to(own_, gid) != nullptr) return;
  }
  const std::uint64_t now_ns = clock_ns();
  std::erase_if(silent_, [&](const auto& one) { return one.second <= now_ns; });
  if (std::ranges::find(silent_, gid, &std::pair<Gid, std::uint64_t>::first) != silent_.end()) {
    return;
  }
  FileDescriptor socket = local_socket();
  sockaddr_un address;
  const socklen_t length = name_of(gid, interface_index_, address);
  if (!socket.is_open() || !leaves_descriptors(socket.get()) ||
      connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return;
  }
  Neighbour::Meeting meeting;
  meeting.peer = gid;
  if (!peer_process(socket.get(), meeting.pid) || !greet(socket.get(), meeting, answer_ms)) {
    silent_.push_back({gid, now_ns + kSilenceNs});
    close_strangers_socket(std::move(socket));
    return;
  }
  meeting.socket = std::move(socket);
  settle_down(std::move(meeting));
}

bool Neighbourhood::greet(int socket, Neighbour::Meeting& meeting, int answer_ms) {
  meeting.made_here = true;
  meeting.is_near = shares_processes(meeting.pid);
  meeting.segment = std::make_unique<SharedSegment>();
  if (meeting.segment->create() != 0) return false;
  std::vector<int> given = bells_for(meeting.is_near);
  given.insert(given.begin(), meeting.segment->fd());
  if (send_message(socket, card(MessageKind::HELLO), given) != 0) return false;
  return take_welcome(socket, meeting, answer_ms) &&
         send_message(socket, card(MessageKind::AGREED), {}) == 0;
}

bool Neighbourhood::take_welcome(int socket, Neighbour::Meeting& meeting, int answer_ms) {
  NeighbourMessage message;
  std::vector<FileDescriptor> fds;
  if (!is_readable_within(socket, answer_ms)) return false;
  if (receive_message(socket, message, fds) != 0 || message.kind != MessageKind::WELCOME ||
      message.gid != meeting.peer || fds.size() > 1 || !are_bells(fds)) {
    for (FileDescriptor& fd : fds) close_strangers_file(std::move(fd));
    return false;
  }
  if (!fds.empty()) meeting.bell = std::move(fds[0]);
  meeting.readable = meeting.is_near && can_read(meeting.pid, message);
  meeting.counts_alike = message.process == static_cast<std::uint64_t>(meeting.pid);
  return true;
}

void Neighbourhood::accept_some() {
  for (int times = 0; times < kGuestsAtOnce; ++times) {
    if (stays_shut()) return;
    FileDescriptor guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest.is_open()) return;
    pid_t pid = 0;
    if (!peer_process(guest.get(), pid) || !watch(guest.get())) {
      close_strangers_socket(std::move(guest));
      continue;
    }
    if (guests_.size() >= kMostGuests) {
      ignore(guests_.front().get());
      close_strangers_socket(std::move(guests_.front()));
      guests_.erase(guests_.begin());
    }
    guests_.push_back(std::move(guest));
  }
  tell_of_guests();
}

// Who knocks meanwhile is told of when the bell has been rung.
bool Neighbourhood::stays_shut() {
  is_shut_ = closing_is_behind() && ring_when_closed(token_, bell_.get());
  return is_shut_;
}

// There may be more, of whom has been told already.
void Neighbourhood::tell_of_guests() {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = listener_.get();
  static_cast<void>(epoll_ctl(readiness_.get(), EPOLL_CTL_MOD, listener_.get(), &event));
}

// Whether who says that it has this address listens there: from then on it is sent what is for that
// address.
bool Neighbourhood::holds(pid_t pid, const Gid& gid) const {
  FileDescriptor socket = local_socket();
  sockaddr_un address;
  const socklen_t length = name_of(gid, interface_index_, address);
  pid_t holder = 0;
  const bool is_held = connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                       peer_process(socket.get(), holder) && holder == pid;
  close_strangers_socket(std::move(socket));
  return is_held;
}

// A guest has said something, or gone.
void Neighbourhood::answer(FileDescriptor socket) {
  Neighbour::Meeting meeting;
  const int error = take_hello(socket.get(), meeting);
  if (error == EAGAIN) {  // It was about another one, whose descriptor had this number.
    if (watch(socket.get())) guests_.push_back(std::move(socket));
    return;
  }
  // Somebody else may find that the neighbour is none, and close its socket.
  const FileDescriptor asked(error == 0 ? fcntl(socket.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (!asked.is_open()) {
    close_strangers_socket(std::move(socket));
    return;
  }
  meeting.socket = std::move(socket);
  const std::vector<int> bells = bells_for(meeting.is_near);
  // Known here before the peer may send.
  settle_down(std::move(meeting));
  static_cast<void>(send_message(asked.get(), card(MessageKind::WELCOME), bells));
}

// Errno; 0 is success. EAGAIN: nothing was said.
int Neighbourhood::take_hello(int socket, Neighbour::Meeting& meeting) {
  NeighbourMessage message;
  std::vector<FileDescriptor> fds;
  const int error = receive_message(socket, message, fds);
  meeting.segment = std::make_unique<SharedSegment>();
  if (error != 0 || message.kind != MessageKind::HELLO ||
      message.segment_bytes != sizeof(SegmentLayout) || fds.empty() || message.gid == own_ ||
      !leaves_descriptors(fds.back().get()) || !are_bells(std::span(fds).subspan(1)) ||
      !peer_process(socket, meeting.pid) || !holds(meeting.pid, message.gid) ||
      meeting.segment->adopt(std::move(fds[0])) != 0) {
    for (FileDescriptor& fd : fds) close_strangers_file(std::move(fd));
    return error == 0 ? EPROTO : error;
  }
  meeting.peer = message.gid;
  if (fds.size() > 1) meeting.bell = std::move(fds[1]);
  meeting.is_near = shares_processes(meeting.pid);
  meeting.readable = meeting.is_near && can_read(meeting.pid, message);
  meeting.counts_alike = message.process == static_cast<std::uint64_t>(meeting.pid);
  return 0;
}

void Neighbourhood::settle_down(Neighbour::Meeting meeting) {
  const bool is_ordered = join_barriers();
  meeting.own = own_;
  meeting.is_ordered = is_ordered;
  meeting.process = process_descriptor(meeting.pid);
  meeting.clock_ns = clock_ns;
  const int socket = meeting.socket.get();
  const int process = meeting.process.get();
  auto neighbour = std::make_unique<Neighbour>(std::move(meeting));
  const std::lock_guard lock(mutex_);
  const Change change(*this);
  // Those who came before count on barriers until they hear that there are none.
  is_ordered_ = is_ordered_ || is_ordered;
  if (!neighbour->greeted_here()) remove_former(neighbour->gid());
  neighbours_.push_back(std::move(neighbour));
  inhabited_.store(true);
  // Who sleeps now has not told this one to wake it.
  eventfd_write(bell_.get(), 1);
  static_cast<void>(watch(socket));
  static_cast<void>(watch(process));
}

}  // namespace softhca
