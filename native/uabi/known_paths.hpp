// Which paths of a program's file system are ours, and what stands behind them: device files, and
// directories of sysfs that are shown from a generated tree. Thread-safe.
#pragma once

#include <sys/types.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace softhca {

struct KnownPath {
  enum class Kind { directory_tree, device, live };
  Kind kind = Kind::directory_tree;
  std::string file;  // Of the tree.
  dev_t device = 0;
};

class KnownPaths {
 public:
  // Everything at and below `path` is shown from `directory`. What lies below a directory that is
  // named `live` changes by itself: whoever opens it is announced first.
  void show(std::string path, std::string directory);
  void set_live_directories(const std::vector<std::string>& names);
  void add_device(std::string path, dev_t device);
  void remove(const std::string& path);

  std::optional<KnownPath> find(std::string_view path) const;

 private:
  bool is_live(std::string_view below) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> trees_;
  std::map<std::string, dev_t, std::less<>> devices_;
  std::vector<std::string> live_;  // Each as it stands in a path, between slashes.
};

// Without ".", ".." and empty parts, as long as no symbolic link is in it: ours has none. Empty for
// a path that is not absolute.
std::string normal_path(std::string_view path);

}  // namespace softhca
