#include "uabi/known_paths.hpp"

#include <algorithm>

namespace softhca {
namespace {

// Both without parts that say nothing.
bool is_at_or_below(std::string_view path, std::string_view directory) {
  if (directory == "/") return true;
  return path.starts_with(directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace

std::string normal_path(std::string_view path) {
  if (path.empty() || path.front() != '/') return {};
  std::string normal;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      normal.resize(normal.empty() ? 0 : normal.rfind('/'));
    } else {
      normal.append("/").append(part);
    }
  }
  if (normal.empty()) normal.push_back('/');
  return normal;
}

void KnownPaths::show(std::string path, std::string directory) {
  const std::lock_guard lock(mutex_);
  trees_[std::move(path)] = std::move(directory);
}

void KnownPaths::set_live_directories(const std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  live_.clear();
  for (const std::string& name : names) live_.push_back(std::string("/").append(name).append("/"));
}

void KnownPaths::add_device(std::string path, dev_t device) {
  const std::lock_guard lock(mutex_);
  devices_[std::move(path)] = device;
}

void KnownPaths::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  trees_.erase(path);
  devices_.erase(path);
}

bool KnownPaths::is_live(std::string_view below) const {
  return std::any_of(live_.begin(), live_.end(), [&](const std::string& name) {
    return below.find(name) != std::string_view::npos;
  });
}

// The tree whose path is the longest prefix; trees are few.
const KnownPaths::Trees::value_type* KnownPaths::tree_of(std::string_view normal) const {
  const Trees::value_type* best = nullptr;
  for (const auto& tree : trees_) {
    if (is_at_or_below(normal, tree.first) &&
        (best == nullptr || tree.first.size() > best->first.size())) {
      best = &tree;
    }
  }
  return best;
}

bool KnownPaths::leads_through_tree(std::string_view path) const {
  const std::string end = normal_path(path);
  for (std::size_t at = path.find("/.."); at != std::string_view::npos;
       at = path.find("/..", at + 1)) {
    const Trees::value_type* left = tree_of(normal_path(path.substr(0, at)));
    if (left != nullptr && is_at_or_below(left->first, end)) return true;
  }
  return false;
}

std::optional<KnownPath> KnownPaths::find(std::string_view path) const {
  // Nearly every path of a program is another's: the quick way out comes first.
  if (!path.starts_with("/sys") && !path.starts_with("/dev") && !path.starts_with("//") &&
      !path.starts_with("/.")) {
    return std::nullopt;
  }
  const std::string normal = normal_path(path);
  const std::lock_guard lock(mutex_);
  if (const auto device = devices_.find(normal); device != devices_.end()) {
    return KnownPath{KnownPath::Kind::device, {}, device->second};
  }
  const Trees::value_type* best = tree_of(normal);
  if (best == nullptr) {
    if (!leads_through_tree(path)) return std::nullopt;
    return KnownPath{KnownPath::Kind::parent, normal, 0};
  }
  const std::string below = normal.substr(best->first.size());
  return KnownPath{is_live(below) ? KnownPath::Kind::live : KnownPath::Kind::directory_tree,
                   best->second + below, 0};
}

}  // namespace softhca
