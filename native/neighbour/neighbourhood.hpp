// Finds the other adapters of this host and user, and keeps what leads to them. Nothing has to be
// started: each adapter listens at an abstract local socket that has its address and its user for a
// name, and is gone with it. A link-local IPv6 address says little without its interface, which is
// in the name as well.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "adapter/adapter.hpp"
#include "link/address.hpp"
#include "link/file_descriptor.hpp"
#include "neighbour/neighbour.hpp"
#include "transport/local_path.hpp"
#include "vocabulary/short_mutex.hpp"

namespace softhca {

class Neighbourhood final : public LocalPaths {
 public:
  // `mutex` guards `adapter`, whose address is `local`. Null: local sockets cannot be had.
  static std::unique_ptr<Neighbourhood> open(const LocalAddress& local, ShortMutex& mutex,
                                             Adapter& adapter);
  ~Neighbourhood() override;

  // A neighbour answers at once, if its process runs at all. Until then packets take the network.
  static constexpr int kAnswerMs = 250;

  // Makes the acquaintance of whoever has this address on this host, if somebody has. Waits a
  // little for an answer. The adapter is not locked; thread-safe.
  void meet(const Gid& gid, int answer_ms = kAnswerMs);

  // Whether there is any neighbour. Needs no lock.
  bool is_inhabited() const { return inhabited_.load(std::memory_order_relaxed); }

  // Readable when serve() has something to do, or a neighbour something for us.
  int ready_fd() const { return readiness_.get(); }
  // The adapter is not locked. One caller at a time.
  void serve();

  // Leaves all, and is met by nobody any more. The adapter is not locked; thread-safe, but for
  // serve().
  void close();
  // The same, and forgets the descriptors, which somebody else has closed. As serve().
  void lose();

  // --- with the adapter locked
  LocalPath* path_to(const Gid& own, const Gid& peer) override;
  void recall(std::uint32_t qpn, LentPayloads which) override;
  bool revoke(std::uint32_t key_index) override;
  bool has_unread() const override;
  // Whether fetch() would have something to do.
  bool has_work() const;
  std::size_t count() const { return neighbours_.size(); }
  // Whether payloads that were left in place are under way to somebody.
  bool has_lent() const;
  // Takes in what has come. True: something had.
  bool fetch(std::uint64_t now_ns);
  // From now on whoever sends something wakes us. False: something has come already.
  bool prepare_to_sleep();
  void awake();

  // For a child after fork(). What another thread of the parent was just changing stays as it is.
  void abandon();

 private:
  // Around every change of who is known here.
  class Change {
   public:
    explicit Change(Neighbourhood& all) : all_(all) {
      all_.changes_.fetch_add(1);
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    ~Change() { all_.changes_.fetch_sub(1); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    Neighbourhood& all_;
  };

  Neighbourhood(const LocalAddress& local, ShortMutex& mutex, Adapter& adapter);
  bool listen();
  void close_door();
  bool watch(int fd, std::uint32_t how = 0);
  void ignore(int fd);
  void remove_former(const Gid& gid);
  void remove_gone(int fd);
  void take_the_rest(Neighbour& neighbour);
  void leave(std::size_t index);

  // --- meeting (meeting.cpp)
  void accept_some();
  bool stays_shut();
  void tell_of_guests();
  bool holds(pid_t pid, const Gid& gid) const;
  void answer(FileDescriptor socket);
  int take_hello(int socket, Neighbour::Meeting& meeting);
  void settle_down(Neighbour::Meeting meeting);
  bool greet(int socket, Neighbour::Meeting& meeting, int answer_ms);
  bool take_welcome(int socket, Neighbour::Meeting& meeting, int answer_ms);
  NeighbourMessage card(MessageKind kind) const;
  std::vector<int> bells_for(bool is_near) const;
  bool can_read(pid_t pid, const NeighbourMessage& message) const;

  const Gid own_;
  const unsigned interface_index_;
  ShortMutex& mutex_;
  Adapter& adapter_;
  std::uint64_t token_ = 0;
  FileDescriptor readiness_;
  FileDescriptor listener_;
  FileDescriptor bell_;  // Rung by neighbours.
  std::mutex meeting_;
  std::vector<std::pair<Gid, std::uint64_t>> silent_;  // Did not answer, and are left alone until.
  std::vector<FileDescriptor> guests_;                 // Have connected, and not said who they are.
  bool is_shut_ = false;                               // To them, until what hangs is closed.
  std::vector<std::unique_ptr<Neighbour>> neighbours_;
  std::atomic<bool> inhabited_{false};
  std::atomic<int> changes_{0};  // Under way.
  bool is_ordered_ = false;      // Barriers can be asked for.
};

}  // namespace softhca
