// Takes what the kernel asks about one tree of programs, in a thread of its own: answers what can
// be answered here, and queues the rest for Python.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "link/file_descriptor.hpp"
#include "uabi/handle_calls.hpp"
#include "uabi/known_files.hpp"
#include "uabi/known_paths.hpp"
#include "uabi/near_waking.hpp"
#include "uabi/notification.hpp"
#include "uabi/path_calls.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// A call for Python. `inode` is the file's, of a call on a descriptor of ours.
struct Asked {
  Notification call;
  std::uint64_t inode = 0;
};

// What all listeners of a supervisor share.
struct Known {
  KnownPaths paths;
  KnownFiles files;
  DoorbellTable doorbells;
  ArmTable arms;
  std::atomic<bool> knows_ioctl{true};
};

class Listener {
 public:
  // Takes the descriptor over.
  Listener(int descriptor, std::shared_ptr<Known> known);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  Status start();
  // Ends the thread. Whoever waits for an answer gets ENOSYS when the descriptor is closed.
  void stop();

  // The oldest call that waits, or none. `fd()` is readable while there is one, and at the end.
  std::optional<Asked> next();
  int fd() const { return ready_.get(); }
  // True once no program is left.
  bool is_over() const { return over_.load(); }

  // The last task whose memory we may not reach, once; 0 if there is none.
  pid_t take_refused_task() { return refused_task_.exchange(0); }

  const Answers& answers() const { return answers_; }
  // Answers a call of the tree that waited for the tree to be brought up to date.
  void answer_from_tree(const Notification& call);

 private:
  void run();
  void handle(const Notification& call);
  void on_descriptor_call(const Notification& call);
  bool rings(const Notification& call, std::uint64_t inode);
  bool arms(const Notification& call, std::uint64_t inode);
  void queue_for_python(const Asked& asked);
  void note_refusal(pid_t task);

  FileDescriptor descriptor_;
  FileDescriptor ready_;  // eventfd
  FileDescriptor stop_;   // eventfd
  std::shared_ptr<Known> known_;
  NearWaking waking_;
  Answers answers_;
  PathCalls path_calls_;
  std::mutex mutex_;
  std::deque<Asked> queue_;
  std::atomic<bool> over_{false};
  std::atomic<pid_t> refused_task_{0};
  bool told_of_refusal_ = false;
  std::thread thread_;
};

}  // namespace softhca
