// Strangers that hand over files which keep waiting whoever closes them last.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "neighbour/piece_on_the_way.hpp"
#include "tests/neighbour_welcome.hpp"
#include "wire/short_packet.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

// A TCP socket with bytes that nobody reads: for an hour its last close waits for them to leave.
struct Lingering {
  Lingering() {
    const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof address;
    CHECK_EQ(bind(listener.get(), name, length), 0);
    CHECK_EQ(listen(listener.get(), 1), 0);
    CHECK_EQ(getsockname(listener.get(), name, &length), 0);
    CHECK_EQ(connect(given.get(), name, length), 0);
    deaf.reset(accept(listener.get(), nullptr, nullptr));
    std::array<char, 65536> bytes{};
    while (send(given.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
    const linger an_hour{1, 3600};
    CHECK_EQ(setsockopt(given.get(), SOL_SOCKET, SO_LINGER, &an_hour, sizeof an_hour), 0);
  }
  FileDescriptor given{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  FileDescriptor deaf;
};

// A message with such a file, which is nobody else's then.
void hand_over(int through, std::size_t bytes, Lingering& file) {
  std::array<char, 64> said{};
  iovec piece{said.data(), bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  *rights = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  const int fd = file.given.get();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  CHECK_EQ(sendmsg(through, &header, 0), static_cast<ssize_t>(bytes));
  file.given.reset();
}

// Runs it in a process of its own, which may hang.
void check_ends(const std::function<void()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    try {
      what();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}

FileDescriptor knock_at(const Side& host) {
  FileDescriptor guest = local_socket();
  Name name = name_of(host.gid());
  CHECK_EQ(connect(guest.get(), name.get(), name.length), 0);
  return guest;
}

TEST("neighbour: a guest whose file lingers is not waited for") {
  check_ends([] {
    Side host(1);
    Lingering heard;
    Lingering unheard;
    Lingering empty;
    const FileDescriptor guest = knock_at(host);
    hand_over(guest.get(), 50, heard);
    hand_over(guest.get(), 50, unheard);
    for (int times = 0; times < 3; ++times) host.neighbours->serve();
    const FileDescriptor brief = knock_at(host);
    CHECK_EQ(send(brief.get(), "?", 1, 0), 1);
    hand_over(brief.get(), 0, empty);
    for (int times = 0; times < 3; ++times) host.neighbours->serve();
    // Another one is heard.
    Guest polite(config_of(2).gids[0]);
    polite.connect_to(host.gid());
    polite.greet();
    for (int times = 0; times < 3; ++times) host.neighbours->serve();
    CHECK(host.neighbours->is_inhabited());
  });
}

TEST("neighbour: one that hands over a file that lingers is left, and not waited for") {
  check_ends([] {
    Side host(1);
    Lingering file;
    Lingering another;
    Guest guest(config_of(2).gids[0]);
    welcome(host, guest);
    hand_over(guest.talk.get(), 50, file);
    hand_over(guest.talk.get(), 50, another);
    for (int times = 0; times < 2; ++times) host.neighbours->serve();
    CHECK(!host.neighbours->is_inhabited());
  });
}

// A record whose payload lies in a buffer that nobody knows: what was said before it is heard.
void refer_to_nothing(Guest& guest) {
  RingWriter writer(guest.segment.layout().rings[0]);
  ShortPacket packet;
  packet.opcode = make_opcode(OpcodeTransport::RC, Operation::SEND_ONLY);
  const PieceOnTheWay way{0, 1, 4096};
  RingPlace behind;
  RingRecord record =
      writer.begin(static_cast<std::uint32_t>(packet.header_bytes()), sizeof way, behind);
  CHECK(record.slot != nullptr);
  record.piece_count = 1;
  encode_short(packet, record.headers);
  std::memcpy(record.rest, &way, sizeof way);
  writer.publish(record, behind);
}

TEST("neighbour: one that hands over a file that lingers is left, whenever that is heard") {
  for (const bool is_asked_for : {false, true}) {
    check_ends([=] {
      Side host(1);
      Lingering file;
      Guest guest(config_of(2).gids[0]);
      welcome(host, guest);
      hand_over(guest.talk.get(), 50, file);
      if (is_asked_for) {
        CHECK(host.neighbours->path_to(host.gid(), guest.own) == nullptr);
      } else {
        refer_to_nothing(guest);
      }
      static_cast<void>(host.neighbours->fetch(kNow));
      CHECK(!host.neighbours->is_inhabited());
      host.go();
    });
  }
}

TEST("neighbour: who has knocked with a file that lingers does not keep a device from its end") {
  check_ends([] {
    Side host(1);
    Lingering file;
    const FileDescriptor guest = knock_at(host);
    hand_over(guest.get(), 50, file);
    host.go();
  });
}

// So many guests hand over files that linger, and then somebody greets as a neighbour does.
template <std::size_t kGuests>
struct Crowd {
  std::array<Lingering, kGuests> files;
  std::array<FileDescriptor, kGuests> guests;
  Guest polite{config_of(2).gids[0]};

  explicit Crowd(Side& host) {
    for (std::size_t i = 0; i < kGuests; ++i) {
      guests[i] = knock_at(host);
      hand_over(guests[i].get(), 50, files[i]);
      for (int times = 0; times < 2; ++times) host.neighbours->serve();
    }
    polite.connect_to(host.gid());
    polite.greet();
    for (int times = 0; times < 3; ++times) host.neighbours->serve();
  }
};

// They would use up the descriptors of those who take them.
TEST("neighbour: while many files linger nobody else is let in") {
  check_ends([] {
    Side host(1);
    Crowd<40> crowd(host);
    CHECK(!host.neighbours->is_inhabited());
    host.go();
  });
}

// Nobody else has to knock, as long as any of them is let in.
TEST("neighbour: who knocked while many files lingered is let in when they are closed") {
  check_ends([] {
    Side host(1);
    Crowd<20> crowd(host);
    CHECK(!host.neighbours->is_inhabited());
    for (Lingering& file : crowd.files) file.deaf.reset();
    while (!host.neighbours->is_inhabited()) {
      wait_for(host.neighbours->ready_fd());
      host.neighbours->serve();
    }
    host.go();
  });
}

}  // namespace
}  // namespace softhca::testing
