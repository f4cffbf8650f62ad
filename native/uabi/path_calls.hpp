// Answers the calls that only look at files: of the generated tree, and of device files. Opening a
// device is not among them.
#pragma once

#include <string>

#include "uabi/known_files.hpp"
#include "uabi/known_paths.hpp"
#include "uabi/notification.hpp"

namespace softhca {

enum class Outcome { answered, not_ours, for_python };

class PathCalls {
 public:
  PathCalls(const Answers& answers, const KnownPaths& paths, const KnownFiles& files)
      : answers_(answers), paths_(paths), files_(files) {}

  // For every call that names a path or asks what a descriptor is. `tree_is_fresh`: what the tree
  // shows has been brought up to date for this very call.
  Outcome answer(const Notification& call, bool tree_is_fresh = false) const;

 private:
  void open(const Notification& call, const KnownPath& path) const;
  void stat_tree(const Notification& call, const std::string& file) const;
  void stat_device(const Notification& call, dev_t device) const;
  // Of a link's target and of attributes, none of which ours have.
  void answer_that_there_is_none(const Notification& call, const KnownPath& path) const;
  void check_access(const Notification& call, const KnownPath& path) const;
  // Writes the structure that the call asked for, and answers.
  void give_stat(const Notification& call, const struct stat& status) const;

  const Answers& answers_;
  const KnownPaths& paths_;
  const KnownFiles& files_;
};

// The path that a call names; of one that is relative to the working directory, the whole of it if
// it may be ours. Empty if the call names none.
std::string path_of(const Notification& call);

// Flags of an open of any kind, as open(2) takes them.
std::uint64_t open_flags(const Notification& call);

}  // namespace softhca
