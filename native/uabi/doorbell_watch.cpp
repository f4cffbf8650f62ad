#include "uabi/doorbell_watch.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "driver/clock.hpp"
#include "driver/signals_blocked.hpp"
#include "memory/guarded_access.hpp"
#include "uabi/doorbell_record.hpp"
#include "uabi/file_watch.hpp"

namespace softhca {
namespace {

// Doorbells are looked at through a window this large, which moves on.
constexpr std::uint64_t kWindowBytes = 1u << 20;
// One file must not keep the thread from the others for longer.
constexpr int kBatch = 64;
// Nor a program whoever does its command.
constexpr int kMostAtOnce = kWindowBytes / kDoorbellBytes;

}  // namespace

class DoorbellWatch::Track {
 public:
  Track(std::shared_ptr<RingFile> file, int number)
      : watch(number), file_(std::move(file)), inode_(file_->inode()) {}
  ~Track() {
    if (window_ != nullptr) munmap(window_, kWindowBytes);
  }
  Track(const Track&) = delete;
  Track& operator=(const Track&) = delete;

  // Rings so many at most; true if there was one. Those that another thread has found are rung
  // when this returns.
  bool ring(const DoorbellTable& doorbells, int most) {
    const std::lock_guard lock(mutex_);
    bool rang = false;
    for (int count = 0; count < most; ++count) {
      if (!move_window()) break;
      const SeenDoorbell seen = look_at_doorbell(
          [&](std::size_t at, std::uint32_t& value) { return guarded_load(word(at), &value); },
          [&] { file_->wait_for_writer(); });
      if (seen.kind == SeenDoorbell::Kind::none) break;
      if (seen.kind == SeenDoorbell::Kind::doorbell) {
        static_cast<void>(doorbells.call(inode_, seen.handle));
      }
      rang = true;
      into_ += kDoorbellBytes;
    }
    return rang;
  }

  const int watch;

 private:
  const std::uint32_t* word(std::size_t at) const {
    return reinterpret_cast<const std::uint32_t*>(window_ + into_ + at);
  }

  // What lies behind is done with, and gives its memory back.
  bool move_window() {
    if (window_ != nullptr && into_ < kWindowBytes) return true;
    if (window_ != nullptr) {
      munmap(window_, kWindowBytes);
      file_->free(begin_, kWindowBytes);
      begin_ += kWindowBytes;
    }
    into_ = 0;
    void* window =
        mmap(nullptr, kWindowBytes, PROT_READ, MAP_SHARED, file_->fd(), static_cast<off_t>(begin_));
    window_ = window == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(window);
    return window_ != nullptr;
  }

  const std::shared_ptr<RingFile> file_;
  const std::uint64_t inode_;
  std::mutex mutex_;
  std::uint64_t begin_ = RingFile::kDoorbellsAt;
  std::uint8_t* window_ = nullptr;
  std::size_t into_ = 0;  // The next one in the window.
};

DoorbellWatch::DoorbellWatch(const DoorbellTable& doorbells, std::uint64_t most_ns)
    : doorbells_(doorbells), lookout_(most_ns) {}

DoorbellWatch::~DoorbellWatch() { stop(); }

Status DoorbellWatch::start() {
  inotify_.reset(inotify_init1(IN_CLOEXEC));
  end_.reset(memfd_create("softhca-end", MFD_CLOEXEC));
  end_watch_ = inotify_.is_open() && end_.is_open() ? watch(end_.get()) : -1;
  if (end_watch_ < 0) return refuse(errno, "doorbells", 0, why_no_inotify(errno));
  install_fault_guard();
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return refuse(error.code().value(), "doorbells", 0, "cannot have a thread");
  }
  return Status::success();
}

void DoorbellWatch::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  inotify_rm_watch(inotify_.get(), end_watch_);  // Is an event too.
  thread_.join();
}

int DoorbellWatch::watch(int fd) const {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return inotify_add_watch(inotify_.get(), path, IN_MODIFY);
}

Status DoorbellWatch::add(std::shared_ptr<RingFile> file) {
  const int watched = watch(file->fd());
  if (watched < 0) return refuse(errno, "file", 0, why_no_inotify(errno));
  const std::uint64_t inode = file->inode();
  const std::lock_guard lock(mutex_);
  tracks_[inode] = std::make_shared<Track>(std::move(file), watched);
  changes_.fetch_add(1);
  return Status::success();
}

void DoorbellWatch::remove(std::uint64_t inode) {
  const std::lock_guard lock(mutex_);
  const auto found = tracks_.find(inode);
  if (found == tracks_.end()) return;
  changes_.fetch_add(1);
  inotify_rm_watch(inotify_.get(), found->second->watch);
  tracks_.erase(found);
}

void DoorbellWatch::ring_written(std::uint64_t inode) {
  std::shared_ptr<Track> track;
  {
    const std::lock_guard lock(mutex_);
    const auto found = tracks_.find(inode);
    if (found == tracks_.end()) return;
    track = found->second;
  }
  track->ring(doorbells_, kMostAtOnce);
}

// Files are few, and looking at one that has no doorbell is a load: whose events came is not asked.
bool DoorbellWatch::ring_all() {
  if (changes_.load() != changes_seen_) {
    // A file may be Python's, and whoever has the GIL may want the lock.
    std::vector<std::shared_ptr<Track>> done_with;
    const std::lock_guard lock(mutex_);
    changes_seen_ = changes_.load();
    done_with.swap(in_turn_);
    for (const auto& [inode, track] : tracks_) in_turn_.push_back(track);
  }
  bool rang = false;
  for (const auto& track : in_turn_) rang |= track->ring(doorbells_, kBatch);
  return rang;
}

// Until there is a doorbell, or a file comes or goes. Events are taken before doorbells are looked
// for: one that comes later has its own. False: never again.
bool DoorbellWatch::sleep() {
  alignas(inotify_event) std::array<char, 4096> events;
  return read(inotify_.get(), events.data(), events.size()) > 0 || errno == EINTR;
}

void DoorbellWatch::run() {
  bool awaited = false;  // The lookout has slept since the last doorbell.
  while (!stopping_.load() && sleep()) {
    for (;;) {
      const bool rang = ring_all();
      if (stopping_.load()) return;
      const std::uint64_t now_ns = monotonic_ns();
      if (rang) {
        if (std::exchange(awaited, false)) lookout_.woken(now_ns);
        lookout_.found(now_ns);
      } else if (!lookout_.goes_on(now_ns)) {
        break;
      }
    }
    awaited = true;
  }
}

}  // namespace softhca
