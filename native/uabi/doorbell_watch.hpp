// Doorbells that programs write to their file, without anybody being asked: a thread sees them
// there and rings. Posting is then as on hardware, a write that nobody answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "link/file_descriptor.hpp"
#include "uabi/handle_calls.hpp"
#include "uabi/lookout.hpp"
#include "uabi/ring_file.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

class DoorbellWatch {
 public:
  // `most_ns`: how long the thread goes on looking after the last doorbell at most; see Lookout.
  DoorbellWatch(const DoorbellTable& doorbells, std::uint64_t most_ns);
  ~DoorbellWatch();
  DoorbellWatch(const DoorbellWatch&) = delete;
  DoorbellWatch& operator=(const DoorbellWatch&) = delete;

  Status start();
  void stop();

  // What the program writes from RingFile::kDoorbellsAt on are doorbells. The program's own
  // description of the file must have been opened anew: of that which memfd_create(2) made the
  // kernel tells nothing.
  Status add(std::shared_ptr<RingFile> file);
  void remove(std::uint64_t inode);
  // Rings what was written to a file so far, in the caller's thread: what comes after it finds it
  // done. Also after `stop`. A program that goes on writing meanwhile does not keep the caller.
  void ring_written(std::uint64_t inode);

 private:
  // The doorbells of one file, as far as they were rung.
  class Track;

  int watch(int fd) const;
  void run();
  bool sleep();
  bool ring_all();

  const DoorbellTable& doorbells_;
  Lookout lookout_;  // The thread's.
  FileDescriptor inotify_;
  FileDescriptor end_;  // Nobody writes to it: that it is watched no more ends the thread.
  int end_watch_ = -1;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Track>> tracks_;  // By inode.
  std::atomic<std::uint32_t> changes_{0};                   // Of `tracks_`.
  std::uint32_t changes_seen_ = 0;  // The thread's, as what it goes through is:
  std::vector<std::shared_ptr<Track>> in_turn_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace softhca
