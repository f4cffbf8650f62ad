#include "neighbour/neighbourhood.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <utility>

#include "neighbour/barrier.hpp"
#include "neighbour/local_name.hpp"
#include "neighbour/strangers_files.hpp"

namespace softhca {
namespace {

constexpr int kBacklog = 1024;
constexpr int kRecordsAtOnce = 64;
constexpr int kEventsAtOnce = 16;

}  // namespace

Neighbourhood::Neighbourhood(const LocalAddress& local, ShortMutex& mutex, Adapter& adapter)
    : own_(local.gid), interface_index_(local.interface_index), mutex_(mutex), adapter_(adapter) {}

Neighbourhood::~Neighbourhood() { close_door(); }

void Neighbourhood::close_door() {
  for (FileDescriptor& guest : guests_) close_strangers_socket(std::move(guest));
  guests_.clear();
  shutdown(listener_.get(), SHUT_RDWR);
  for (;;) {  // Those who have knocked.
    FileDescriptor guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest.is_open()) break;
    close_strangers_socket(std::move(guest));
  }
}

void Neighbourhood::close() {
  const std::lock_guard meeting_one(meeting_);
  const std::lock_guard lock(mutex_);
  const Change change(*this);
  while (!neighbours_.empty()) leave(neighbours_.size() - 1);
  close_door();
  readiness_.reset();
  listener_.reset();
  bell_.reset();
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
      if (is_shut_ && !stays_shut()) tell_of_guests();
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

// The numbers may be other files' by now: none is touched again, not even to close it.
void Neighbourhood::lose() {
  const std::lock_guard meeting_one(meeting_);
  const std::lock_guard lock(mutex_);
  const Change change(*this);
  readiness_.release();
  listener_.release();
  bell_.release();
  for (FileDescriptor& guest : guests_) guest.release();
  for (const auto& neighbour : neighbours_) neighbour->lose();
  while (!neighbours_.empty()) leave(neighbours_.size() - 1);
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

bool Neighbourhood::revoke(std::uint32_t key_index) {
  bool taken_back = false;
  for (const auto& neighbour : neighbours_) taken_back |= neighbour->revoke(key_index);
  return taken_back;
}

bool Neighbourhood::has_unread() const {
  return std::ranges::any_of(neighbours_, [](const auto& one) { return one->has_record(); });
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
  return std::ranges::none_of(neighbours_, [](const auto& one) {
    return one->has_record() || one->has_refusal() || one->is_given_up();
  });
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
