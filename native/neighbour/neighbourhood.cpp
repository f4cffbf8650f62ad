#include "neighbour/neighbourhood.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "neighbour/barrier.hpp"
#include "neighbour/fair_share.hpp"
#include "neighbour/peer_memory.hpp"
#include "neighbour/strangers_files.hpp"

namespace softhca {
namespace {

// A neighbour that did not answer is not asked again for so long.
constexpr std::uint64_t kSilenceNs = 1'000'000'000;
constexpr int kBacklog = 1024;
// Anybody may knock, and as fast as guests are let in. Fewer than are heard at once.
constexpr int kGuestsAtOnce = 8;
// Each holds a descriptor. Who is one says so at once.
constexpr std::size_t kMostGuests = 64;
constexpr int kRecordsAtOnce = 64;
constexpr int kEventsAtOnce = 16;

// An abstract name: a file that nobody has to remove.
socklen_t name_of(const Gid& gid, unsigned interface_index, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  char* name = address.sun_path + 1;
  int length = std::snprintf(name, sizeof address.sun_path - 1, "softhca-%u-", geteuid());
  for (const std::uint8_t byte : gid.raw) length += std::snprintf(name + length, 3, "%02x", byte);
  // Other interfaces may have the same address, and lead to others.
  if (!gid.is_ipv4() && is_link_local(gid)) {
    length += std::snprintf(name + length, sizeof "-4294967295", "-%u", interface_index);
  }
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                static_cast<std::size_t>(length));
}

FileDescriptor local_socket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

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

FileDescriptor process_descriptor(pid_t pid) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

Neighbourhood::Neighbourhood(const LocalAddress& local, ShortMutex& mutex, Adapter& adapter)
    : own_(local.gid), interface_index_(local.interface_index), mutex_(mutex), adapter_(adapter) {}

Neighbourhood::~Neighbourhood() {
  for (FileDescriptor& guest : guests_) close_strangers_socket(std::move(guest));
  shutdown(listener_.get(), SHUT_RDWR);
  for (;;) {  // Those who have knocked.
    FileDescriptor guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest.is_open()) break;
    close_strangers_socket(std::move(guest));
  }
}

std::unique_ptr<Neighbourhood> Neighbourhood::open(const LocalAddress& local, ShortMutex& mutex,
                                                   Adapter& adapter) {
  std::unique_ptr<Neighbourhood> made(new Neighbourhood(local, mutex, adapter));
  return made->listen() ? std::move(made) : nullptr;
}

bool Neighbourhood::listen() {
  if (getrandom(&token_, sizeof token_, 0) != static_cast<ssize_t>(sizeof token_)) return false;
  readiness_.reset(epoll_create1(EPOLL_CLOEXEC));
  bell_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  listener_ = local_socket();
  sockaddr_un address;
  const socklen_t length = name_of(own_, interface_index_, address);
  // A guest for whom there is no descriptor left is told of once, not again and again.
  return readiness_.is_open() && bell_.is_open() && listener_.is_open() &&
         bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
         ::listen(listener_.get(), kBacklog) == 0 && watch(listener_.get(), EPOLLET) &&
         watch(bell_.get());
}

bool Neighbourhood::watch(int fd, std::uint32_t how) {
  epoll_event event{};
  event.events = EPOLLIN | how;
  event.data.fd = fd;
  return fd < 0 || epoll_ctl(readiness_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

// Before a descriptor is closed: children of fork() may have copies, with which it would stay in
// the set, and tell of its end without end.
void Neighbourhood::ignore(int fd) {
  static_cast<void>(epoll_ctl(readiness_.get(), EPOLL_CTL_DEL, fd, nullptr));
}

// --- meeting

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
  meeting.segment = std::make_unique<SharedSegment>();
  if (meeting.segment->create() != 0 ||
      send_message(socket, card(MessageKind::HELLO), {meeting.segment->fd(), bell_.get()}) != 0) {
    return false;
  }
  return take_welcome(socket, meeting, answer_ms) &&
         send_message(socket, card(MessageKind::AGREED), {}) == 0;
}

bool Neighbourhood::take_welcome(int socket, Neighbour::Meeting& meeting, int answer_ms) {
  NeighbourMessage message;
  std::vector<FileDescriptor> fds;
  if (!is_readable_within(socket, answer_ms)) return false;
  if (receive_message(socket, message, fds) != 0 || message.kind != MessageKind::WELCOME ||
      message.gid != meeting.peer || fds.size() != 1 || !is_bell(fds[0].get())) {
    for (FileDescriptor& fd : fds) close_strangers_file(std::move(fd));
    return false;
  }
  meeting.bell = std::move(fds[0]);
  meeting.readable = can_read(meeting.pid, message);
  meeting.counts_alike = message.process == static_cast<std::uint64_t>(meeting.pid);
  return true;
}

void Neighbourhood::accept_some() {
  for (int times = 0; times < kGuestsAtOnce; ++times) {
    if (closing_is_behind()) return;
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
  // There may be more, of whom has been told already.
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
  // Known here before the peer may send.
  settle_down(std::move(meeting));
  static_cast<void>(send_message(asked.get(), card(MessageKind::WELCOME), {bell_.get()}));
}

// Errno; 0 is success. EAGAIN: nothing was said.
int Neighbourhood::take_hello(int socket, Neighbour::Meeting& meeting) {
  NeighbourMessage message;
  std::vector<FileDescriptor> fds;
  const int error = receive_message(socket, message, fds);
  meeting.segment = std::make_unique<SharedSegment>();
  if (error != 0 || message.kind != MessageKind::HELLO ||
      message.segment_bytes != sizeof(SegmentLayout) || fds.size() != 2 || message.gid == own_ ||
      !leaves_descriptors(fds[1].get()) || !is_bell(fds[1].get()) ||
      !peer_process(socket, meeting.pid) || !holds(meeting.pid, message.gid) ||
      meeting.segment->adopt(std::move(fds[0])) != 0) {
    for (FileDescriptor& fd : fds) close_strangers_file(std::move(fd));
    return error == 0 ? EPROTO : error;
  }
  meeting.peer = message.gid;
  meeting.bell = std::move(fds[1]);
  meeting.readable = can_read(meeting.pid, message);
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
  is_ordered_ = is_ordered;
  if (!neighbour->greeted_here()) remove_former(neighbour->gid());
  neighbours_.push_back(std::move(neighbour));
  inhabited_.store(true);
  // Who sleeps now has not told this one to wake it.
  eventfd_write(bell_.get(), 1);
  static_cast<void>(watch(socket));
  static_cast<void>(watch(process));
}

// Who greets has no use for an earlier acquaintance any more. That of another one which we greeted
// at the same time is left to it.
void Neighbourhood::remove_former(const Gid& gid) {
  for (std::size_t i = neighbours_.size(); i-- > 0;) {
    if (neighbours_[i]->gid() != gid || neighbours_[i]->greeted_here()) continue;
    take_the_rest(*neighbours_[i]);
    leave(i);
  }
}

// --- what happens

void Neighbourhood::serve() {
  epoll_event events[kEventsAtOnce];
  const int count = epoll_wait(readiness_.get(), events, kEventsAtOnce, 0);
  const Change change(*this);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == bell_.get()) {
      eventfd_t rung = 0;
      eventfd_read(bell_.get(), &rung);
    } else if (fd == listener_.get()) {
      accept_some();
    } else if (const auto guest = std::ranges::find(guests_, fd, &FileDescriptor::get);
               guest != guests_.end()) {
      FileDescriptor socket = std::move(*guest);
      guests_.erase(guest);
      ignore(fd);
      answer(std::move(socket));
    } else {
      remove_gone(fd);
    }
  }
}

void Neighbourhood::remove_gone(int fd) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < neighbours_.size(); ++i) {
    Neighbour& neighbour = *neighbours_[i];
    // What is told of may be the end of another one, whose descriptor had this number.
    const bool ended = neighbour.process() == fd && neighbour.peer_is_gone();
    if (ended || (neighbour.socket() == fd && !neighbour.hear())) {
      take_the_rest(neighbour);
      leave(i);
      return;
    }
  }
}

// What it had sent before it went has been sent: its programs may have heard so. Rounds are
// counted, for a peer that is not what it should be may go on writing.
void Neighbourhood::take_the_rest(Neighbour& neighbour) {
  adapter_.begin_call();
  for (std::uint64_t most = 0; most < kSlots; ++most) {
    if (!neighbour.fetch(adapter_, kAskClock, kRecordsAtOnce)) return;
  }
}

// Its queue pairs are left to the network, where nobody answers for it any more.
void Neighbourhood::leave(std::size_t index) {
  const Change change(*this);
  adapter_.forget_path(*neighbours_[index]);
  ignore(neighbours_[index]->socket());
  ignore(neighbours_[index]->process());
  neighbours_.erase(neighbours_.begin() + static_cast<std::ptrdiff_t>(index));
  inhabited_.store(!neighbours_.empty());
}

LocalPath* Neighbourhood::path_to(const Gid& own, const Gid& peer) {
  if (own != own_) return nullptr;
  const auto found = std::ranges::find_if(neighbours_, [&](const auto& one) {
    return one->gid() == peer && one->has_agreed() && !one->is_broken();
  });
  return found == neighbours_.end() ? nullptr : found->get();
}

void Neighbourhood::recall(std::uint32_t qpn, LentPayloads which) {
  for (const auto& neighbour : neighbours_) neighbour->recall(qpn, which);
}

void Neighbourhood::revoke(std::uint32_t key_index) {
  for (const auto& neighbour : neighbours_) neighbour->revoke(key_index);
}

bool Neighbourhood::has_work() const {
  return std::ranges::any_of(neighbours_, [](const auto& one) { return one->has_work(); });
}

bool Neighbourhood::has_lent() const {
  return std::ranges::any_of(neighbours_, [](const auto& one) { return one->has_lent(); });
}

bool Neighbourhood::fetch(std::uint64_t now_ns) {
  bool fetched = false;
  for (std::size_t i = 0; i < neighbours_.size(); ++i) {
    fetched |= neighbours_[i]->fetch(adapter_, now_ns, kRecordsAtOnce);
    if (neighbours_[i]->is_broken()) leave(i--);
  }
  return fetched;
}

bool Neighbourhood::prepare_to_sleep() {
  for (const auto& neighbour : neighbours_) neighbour->wish_to_be_woken();
  if (is_ordered_ && !barrier_for_all()) {
    // They look again, with fences of their own, when they send next.
    is_ordered_ = false;
    for (const auto& neighbour : neighbours_) neighbour->cannot_order();
    return false;
  }
  return std::ranges::none_of(
      neighbours_, [](const auto& one) { return one->has_record() || one->is_given_up(); });
}

void Neighbourhood::awake() {
  for (const auto& neighbour : neighbours_) neighbour->awake();
}

void Neighbourhood::abandon() {
  if (changes_.load() == 0) {
    for (const auto& neighbour : neighbours_) neighbour->abandon();
    for (FileDescriptor& guest : guests_) guest.reset();
  }
  listener_.reset();
  readiness_.reset();
  bell_.reset();
}

}  // namespace softhca
