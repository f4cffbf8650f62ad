// The files that programs got from us for devices, by inode: whatever way a descriptor came to a
// process (inherited, duplicated, passed), it is recognised. Thread-safe.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace softhca {

class KnownFiles {
 public:
  // All such files lie in the one file system of memfds, so that the inode is name enough.
  void add(dev_t file_system, std::uint64_t inode, dev_t device) {
    const std::lock_guard lock(mutex_);
    file_system_ = file_system;
    devices_[inode] = device;
  }
  void remove(std::uint64_t inode) {
    const std::lock_guard lock(mutex_);
    devices_.erase(inode);
  }
  // The device that the file stands for, if it is one of ours.
  std::optional<dev_t> find(const struct stat& file) const {
    const std::lock_guard lock(mutex_);
    const auto found = devices_.find(file.st_ino);
    if (found == devices_.end() || file.st_dev != file_system_) return std::nullopt;
    return found->second;
  }

 private:
  mutable std::mutex mutex_;
  dev_t file_system_ = 0;
  std::map<std::uint64_t, dev_t> devices_;
};

}  // namespace softhca
