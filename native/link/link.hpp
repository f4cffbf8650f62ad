// What moves datagrams (BTH to ICRC) between adapters. A link knows no opcode and no adapter.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "vocabulary/bytes.hpp"
#include "vocabulary/route.hpp"
#include "vocabulary/time.hpp"

namespace softhca {

// Datagrams that one call moves at most; also the size of the system calls' batches.
inline constexpr std::size_t kLinkBatch = 64;

// Room for the longest datagram that a conforming adapter sends, and more.
inline constexpr std::size_t kDatagramBufferBytes = 4352;

// Why a link could not be opened or changed: errno, and a sentence for the user that says what to
// do about it.
struct [[nodiscard]] LinkError {
  int error = 0;  // 0 is success.
  std::string message;

  bool ok() const { return error == 0; }
};

struct Datagram {
  Route route;
  ByteView bytes;
};

// Not thread-safe: one caller at a time.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  // Takes datagrams from the front and returns how many. Taken is sent, or lost as any network may
  // lose it. Fewer than given only while blocked(); a blocked link goes on with the next send(),
  // even of nothing. The bytes may change while it runs.
  virtual std::size_t send(std::span<const Datagram> datagrams) = 0;

  // Fills `datagrams` from the front and returns how many; never waits. Their bytes stay valid
  // until the next receive().
  virtual std::size_t receive(std::span<Datagram> datagrams) = 0;

  // Either is readable when receive() has something or a blocked send() may go on; -1 if the link
  // has no such descriptor. What arrives most shows at the first, so that it passes no epoll set.
  virtual int arrival_fd() const { return -1; }
  virtual int ready_fd() const { return -1; }

  // The last send() could not hand everything on.
  virtual bool blocked() const { return false; }

  // Whether routes of what comes need their traffic class, hop limit and flow label, which take
  // time to fetch. A link tells them until it hears that nobody asks.
  virtual void tell_fields(bool) {}

  // What this peer sends has IPv4 identifications of its own: it sees those of others.
  virtual void numbers_packets(const Gid&) {}

  // The link keeps datagrams back until others overtake them; release() lets them go.
  virtual bool holding() const { return false; }
  virtual void release() {}

  // Tells the link the time, of the driver's clock, and returns when it wants to be told again, for
  // then it will have something to receive or to send: kNever if it does nothing by itself.
  virtual std::uint64_t pass_time(std::uint64_t) { return kNever; }

  // errno, once the link is lost for good and moves nothing any more; 0 while it is not.
  virtual int failure() const { return 0; }
  // Makes it so: a descriptor of the link turned out to be somebody else's.
  virtual void lose(int) {}

  // Multicast membership; each join is undone by one leave.
  virtual LinkError join_group(const Gid& group) = 0;
  virtual LinkError leave_group(const Gid& group) = 0;
  // The link's address is on another interface from now on, and so are its groups.
  virtual LinkError move_to(unsigned) { return {}; }

  // For a child after fork(): gives up the descriptors without a word to what the parent still
  // uses. Nothing else may be called afterwards.
  virtual void abandon() {}
};

}  // namespace softhca
