#include "neighbour/neighbour.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "neighbour/strangers_files.hpp"

namespace softhca {
namespace {

// What nobody has taken. False: there were files that no neighbour hands over.
bool close_all(std::vector<FileDescriptor>& fds) {
  bool known = true;
  for (FileDescriptor& fd : fds) known &= close_strangers_file(std::move(fd));
  return known;
}

}  // namespace

Neighbour::Neighbour(Meeting meeting)
    : met_(std::move(meeting)),
      writer_(met_.segment->layout().rings[met_.made_here ? 0 : 1]),
      reader_(met_.segment->layout().rings[met_.made_here ? 1 : 0]),
      own_process_(met_.pid == getpid()),
      agreed_(met_.made_here),
      own_memory_(process_space()),
      memory_(met_.pid),
      removals_seen_(shared_buffers().removals()) {
  from_peer_.source = met_.peer;
  from_peer_.destination = met_.own;
  reader_.shared().reader_fetches.store(met_.readable ? 1 : 0);
  reader_.shared().reader_orders.store(met_.is_ordered ? 1 : 0);
}

// Nobody here asks any more what the peer has fetched, which may look at the ring much later.
// Children of fork() have copies of the socket, and would keep from the peer that we have gone.
Neighbour::~Neighbour() {
  Wait wait;
  for (Lent& lent : lent_) static_cast<void>(take_back(lent, wait));
  close_strangers_socket(std::move(met_.socket));
}

bool Neighbour::peer_is_gone() const {
  if (met_.process.get() >= 0) {
    pollfd exit{met_.process.get(), POLLIN, 0};
    if (poll(&exit, 1, 0) > 0) return true;
  }
  return kill(met_.pid, 0) != 0 && errno == ESRCH;
}

// Whoever has a bell besides us may have it wait, which its flags say, and they are everybody's.
// Who is near could stop us anyway.
void Neighbour::wake() {
  if (met_.is_near && met_.bell.is_open()) {
    eventfd_write(met_.bell.get(), 1);
    return;
  }
  NeighbourMessage message;
  message.kind = MessageKind::WAKE;
  static_cast<void>(send_message(met_.socket.get(), message, {}));
}

void Neighbour::give_up_if_still() {
  writer_.look();
  if (std::exchange(consumed_when_asked_, writer_.consumed()) == writer_.consumed()) {
    writer_.give_up();
  }
}

void Neighbour::wish_to_be_woken() {
  reader_.shared().reader_asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Neighbour::hear(int most) {
  NeighbourMessage message;
  std::vector<FileDescriptor> fds;
  for (; most > 0; --most) {
    const int error = receive_message(met_.socket.get(), message, fds);
    if (error == EAGAIN) return true;
    if (error != 0) {
      if (!close_all(fds) || error != ECONNRESET) writer_.give_up();
      return false;
    }
    if (message.kind == MessageKind::BUFFER && fds.size() == 1) {
      mapped_.map(message.buffer, message.buffer_bytes, fds[0]);
    } else if (message.kind == MessageKind::FORGET) {
      mapped_.unmap(message.buffer);
    } else if (message.kind == MessageKind::MEMORY && fds.size() == 1 && met_.is_near) {
      memories_.add(message.buffer, met_.counts_alike ? static_cast<pid_t>(message.process) : 0,
                    std::move(fds[0]));
    } else if (message.kind == MessageKind::FORGET_MEMORY) {
      memories_.remove(message.buffer);
    } else if (message.kind == MessageKind::AGREED) {
      agreed_ = true;
    }
    if (!close_all(fds)) {
      writer_.give_up();
      return false;
    }
  }
  return true;
}

void Neighbour::lose() {
  writer_.give_up();
  met_.socket.release();
  met_.bell.release();
  met_.process.release();
  met_.segment->lose();
  memories_.lose();
}

void Neighbour::abandon() {
  met_.socket.reset();
  met_.bell.reset();
  met_.process.reset();
  met_.segment->abandon();
}

}  // namespace softhca
