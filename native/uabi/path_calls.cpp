#include "uabi/path_calls.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "link/file_descriptor.hpp"
#include "uabi/path_arguments.hpp"
#include "uabi/task_memory.hpp"

namespace softhca {
namespace {

// Which argument is the path, and which the structure to fill.
struct Shape {
  int path;
  int structure;
};

Shape shape_of(SystemCall call) {
  switch (call) {
    case SystemCall::open:
    case SystemCall::access:
    case SystemCall::readlink:
    case SystemCall::getxattr:
    case SystemCall::listxattr:
      return {0, -1};
    case SystemCall::stat:
    case SystemCall::lstat:
      return {0, 1};
    case SystemCall::newfstatat:
      return {1, 2};
    case SystemCall::statx:
      return {1, 4};
    case SystemCall::fstat:
      return {-1, 1};
    default:
      return {1, -1};
  }
}

std::uint64_t argument(const Notification& call, int index) {
  return call.arguments[static_cast<std::size_t>(index)];
}

// Where a relative path begins; AT_FDCWD for calls that do not say. What is negative besides is no
// descriptor, as whoever has an absolute path may pass it.
int directory_of(const Notification& call) {
  switch (call.call) {
    case SystemCall::openat:
    case SystemCall::openat2:
    case SystemCall::newfstatat:
    case SystemCall::statx:
    case SystemCall::faccessat:
    case SystemCall::faccessat2:
    case SystemCall::readlinkat:
      return static_cast<int>(call.arguments[0]);
    default:
      return AT_FDCWD;
  }
}

// No program can change to a directory of ours by its path, so that all of our paths have this name
// in them, also those that begin where a program is.
constexpr std::string_view kInOurPaths = "infiniband";

constexpr std::uint64_t kBesidePath = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// Where a link of a task's directory in /proc leads, as this process would say it.
std::string link_of(pid_t task, const char* name) {
  char link[32];
  std::snprintf(link, sizeof(link), "/proc/%d/%s", task, name);
  char path[512];
  const ssize_t length = ::readlink(link, path, sizeof(path));
  // One that fills the room may be longer.
  return length <= 0 || length == sizeof(path)
             ? std::string()
             : std::string(path, static_cast<std::size_t>(length));
}

// As the task would say it, which may be in a chroot.
std::string working_directory(pid_t task) {
  const std::string directory = link_of(task, "cwd");
  const std::string root = link_of(task, "root");
  const bool is_below = root.size() > 1 && directory.starts_with(root) &&
                        (directory.size() == root.size() || directory[root.size()] == '/');
  return is_below ? directory.substr(root.size()) : directory;
}

bool is_directory(const std::string& file) {
  struct stat status;
  return ::stat(file.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_access(SystemCall call) {
  return call == SystemCall::access || call == SystemCall::faccessat ||
         call == SystemCall::faccessat2;
}

// Of a call with a descriptor and an empty path: whether the descriptor is meant.
bool asks_about_itself(const Notification& call) {
  if (call.call == SystemCall::fstat) return true;
  const int at = call.call == SystemCall::statx ? 2 : 3;
  return (argument(call, at) & AT_EMPTY_PATH) != 0;
}

// Why a device file is not opened with such flags, or 0.
int refusal_of_device(std::uint64_t flags) {
  if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) return EEXIST;
  return (flags & O_DIRECTORY) != 0 ? ENOTDIR : 0;
}

// Why a file of the tree is not opened for writing, or not made, or 0. Of what there is nothing is
// written, and nothing is made.
int refusal_of_writing(const std::string& file, std::uint64_t flags) {
  const bool makes = (flags & O_CREAT) != 0;
  struct stat status;
  if (::stat(file.c_str(), &status) != 0) {
    const int error = errno;
    return makes && error == ENOENT && is_directory(file.substr(0, file.rfind('/'))) ? EACCES
                                                                                     : error;
  }
  if (makes && (flags & O_EXCL) != 0) return EEXIST;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if ((flags & O_DIRECTORY) != 0) return ENOTDIR;
  return (flags & O_ACCMODE) != O_RDONLY ? EACCES : 0;
}

void set_time(struct statx_timestamp& to, const timespec& from) {
  to.tv_sec = from.tv_sec;
  to.tv_nsec = static_cast<std::uint32_t>(from.tv_nsec);
}

struct statx extended(const struct stat& status) {
  struct statx wide {};
  wide.stx_mask = STATX_BASIC_STATS;
  wide.stx_blksize = static_cast<std::uint32_t>(status.st_blksize);
  wide.stx_nlink = static_cast<std::uint32_t>(status.st_nlink);
  wide.stx_uid = status.st_uid;
  wide.stx_gid = status.st_gid;
  wide.stx_mode = static_cast<std::uint16_t>(status.st_mode);
  wide.stx_ino = status.st_ino;
  wide.stx_size = static_cast<std::uint64_t>(status.st_size);
  wide.stx_blocks = static_cast<std::uint64_t>(status.st_blocks);
  set_time(wide.stx_atime, status.st_atim);
  set_time(wide.stx_mtime, status.st_mtim);
  set_time(wide.stx_ctime, status.st_ctim);
  wide.stx_rdev_major = major(status.st_rdev);
  wide.stx_rdev_minor = minor(status.st_rdev);
  wide.stx_dev_major = major(status.st_dev);
  wide.stx_dev_minor = minor(status.st_dev);
  return wide;
}

}  // namespace

std::string path_of(const Notification& call) {
  const Shape shape = shape_of(call.call);
  if (shape.path < 0) return {};
  std::string path = read_path(call.task, argument(call, shape.path));
  if (path.empty() || path.front() == '/' || directory_of(call) != AT_FDCWD ||
      path.find(kInOurPaths) == std::string::npos) {
    return path;
  }
  return working_directory(call.task) + "/" + path;
}

std::uint64_t open_flags(const Notification& call) {
  std::uint64_t flags = 0;
  if (call.call == SystemCall::open) {
    flags = call.arguments[1];
  } else if (call.call == SystemCall::openat) {
    flags = call.arguments[2];
  } else {  // First field of struct open_how.
    read_task(call.task, call.arguments[2], &flags, sizeof(flags));
  }
  // Beside it no others count (open(2)).
  return (flags & O_PATH) != 0 ? flags & kBesidePath : flags;
}

Outcome PathCalls::answer(const Notification& call, bool tree_is_fresh) const {
  const Shape shape = shape_of(call.call);
  const std::string path = path_of(call);
  if (directory_of(call) >= 0 || shape.path < 0) {
    // A descriptor in our range, which may be anybody's. Only of itself it is asked, by no path.
    char link[48];
    std::snprintf(link, sizeof(link), "/proc/%d/fd/%d", call.task,
                  static_cast<int>(call.arguments[0]));
    struct stat file;
    if (!path.empty() || !asks_about_itself(call) || ::stat(link, &file) != 0) {
      return Outcome::not_ours;
    }
    const std::optional<dev_t> device = files_.find(file);
    if (!device.has_value()) return Outcome::not_ours;
    stat_device(call, *device);
    return Outcome::answered;
  }
  std::optional<KnownPath> known = paths_.find(path);
  if (!known.has_value() || is_decided_without_path(call) || !answers_.is_valid(call.id)) {
    return Outcome::not_ours;
  }
  const bool is_open = call.call == SystemCall::open || call.call == SystemCall::openat ||
                       call.call == SystemCall::openat2;
  if (known->kind == KnownPath::Kind::parent) {
    // It can be asked about, as whoever lists a tree does. What is opened is the kernel's, which
    // knows what the program may open.
    if (is_open) return Outcome::not_ours;
    known->file = "/proc/" + std::to_string(call.task) + "/root" + known->file;
  }
  if (is_open) {
    if (known->kind == KnownPath::Kind::device) {
      const int error = refusal_of_device(open_flags(call));
      if (error == 0) return Outcome::for_python;
      answers_.refuse(call.id, error);
      return Outcome::answered;
    }
    // By way of a directory, files are opened that nobody is asked about.
    const bool leads_to_live = known->kind == KnownPath::Kind::live || is_directory(known->file);
    if (leads_to_live && !tree_is_fresh) return Outcome::for_python;
    open(call, *known);
  } else if (is_access(call.call)) {
    check_access(call, *known);
  } else if (shape.structure < 0) {
    answer_that_there_is_none(call, *known);
  } else if (known->kind == KnownPath::Kind::device) {
    stat_device(call, known->device);
  } else {
    stat_tree(call, known->file);
  }
  return Outcome::answered;
}

void PathCalls::open(const Notification& call, const KnownPath& path) const {
  const std::uint64_t flags = open_flags(call);
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0) {
    const int error = refusal_of_writing(path.file, flags);
    if (error != 0) {
      answers_.refuse(call.id, error);
      return;
    }
  }
  // The kernel passes no descriptor on that was opened by O_PATH. One that can be read as well does
  // all that such a one does.
  const int wanted = static_cast<int>(flags & (O_DIRECTORY | O_NONBLOCK | O_NOFOLLOW));
  const FileDescriptor file(::open(path.file.c_str(), O_RDONLY | O_CLOEXEC | wanted));
  if (!file.is_open()) {
    answers_.refuse(call.id, errno);
    return;
  }
  if (answers_.add_descriptor(call.id, file.get(), -1, (flags & O_CLOEXEC) != 0, true) < 0) {
    answers_.refuse(call.id, errno);
  }
}

void PathCalls::stat_tree(const Notification& call, const std::string& file) const {
  struct stat status;
  if (::stat(file.c_str(), &status) != 0) {
    answers_.refuse(call.id, errno);
    return;
  }
  give_stat(call, status);
}

void PathCalls::stat_device(const Notification& call, dev_t device) const {
  struct stat status {};
  status.st_mode = S_IFCHR | 0666;
  status.st_nlink = 1;
  status.st_rdev = device;
  status.st_ino = device;
  status.st_blksize = 4096;
  give_stat(call, status);
}

void PathCalls::answer_that_there_is_none(const Notification& call, const KnownPath& path) const {
  struct stat status;
  if (path.kind != KnownPath::Kind::device && ::stat(path.file.c_str(), &status) != 0) {
    answers_.refuse(call.id, ENOENT);
  } else if (call.call == SystemCall::listxattr) {
    answers_.give(call.id, 0);
  } else {
    answers_.refuse(call.id, call.call == SystemCall::getxattr ? ENODATA : EINVAL);
  }
}

void PathCalls::check_access(const Notification& call, const KnownPath& path) const {
  const int mode = static_cast<int>(call.arguments[call.call == SystemCall::access ? 1 : 2]);
  if (path.kind == KnownPath::Kind::device) {
    if ((mode & X_OK) != 0) {
      answers_.refuse(call.id, EACCES);
    } else {
      answers_.give(call.id, 0);
    }
  } else if ((mode & W_OK) != 0) {
    answers_.refuse(call.id, EACCES);
  } else if (::access(path.file.c_str(), mode) != 0) {
    answers_.refuse(call.id, errno);
  } else {
    answers_.give(call.id, 0);
  }
}

void PathCalls::give_stat(const Notification& call, const struct stat& status) const {
  const std::uint64_t to = argument(call, shape_of(call.call).structure);
  bool written;
  // What was looked at may have kept us waiting, and the task's number be another one's by now.
  if (!answers_.is_valid(call.id)) return;
  if (call.call == SystemCall::statx) {
    const struct statx wide = extended(status);
    written = write_task(call.task, to, &wide, sizeof(wide));
  } else {
    // The kernel's structure is the C library's, on the architectures that we know.
    written = write_task(call.task, to, &status, sizeof(status));
  }
  if (written) {
    answers_.give(call.id, 0);
  } else {
    answers_.refuse(call.id, EFAULT);
  }
}

}  // namespace softhca
