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
  // A parent is a directory above a tree, by a path that leads through the tree: there is none such
  // in the program's file system.
  enum class Kind { directory_tree, device, live, parent };
  Kind kind = Kind::directory_tree;
  std::string file;  // Of the tree; of a parent, where the program has it.
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
  using Trees = std::map<std::string, std::string, std::less<>>;

  bool is_live(std::string_view below) const;
  const Trees::value_type* tree_of(std::string_view normal) const;
  // Whether it leaves a tree by way of "..".
  bool leads_through_tree(std::string_view path) const;

  mutable std::mutex mutex_;
  Trees trees_;
  std::map<std::string, dev_t, std::less<>> devices_;
  std::vector<std::string> live_;  // Each as it stands in a path, between slashes.
};

// Without ".", ".." and empty parts, as long as no symbolic link is in it: ours has none. Empty for
// a path that is not absolute.
std::string normal_path(std::string_view path);

}  // namespace softhca
