#include "neighbour/lent_memories.hpp"

#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "neighbour/fair_share.hpp"

namespace softhca {
namespace {

// What the kernel calls the file; empty if that cannot be known.
std::string name_of(int file) {
  char name[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), name, sizeof name);
  return length < 0 ? std::string() : std::string(name, static_cast<std::size_t>(length));
}

// A read of other files might never end: their file system may be a program.
bool is_memory(int file, const std::string& name) {
  struct statfs system;
  return fstatfs(file, &system) == 0 && system.f_type == PROC_SUPER_MAGIC && name.ends_with("/mem");
}

// Another /proc, of a container, has other numbers and other files under the same names.
bool is_memory_of(pid_t process, int file, const std::string& name) {
  struct stat given;
  struct stat found;
  return process > 0 && name.starts_with("/proc/" + std::to_string(process) + "/") &&
         fstat(file, &given) == 0 && stat(name.c_str(), &found) == 0 &&
         given.st_dev == found.st_dev && given.st_ino == found.st_ino;
}

}  // namespace

// Nobody writes to a peer's: it fetches what it gets.
class LentMemories::Memory final : public AddressSpace {
 public:
  Memory(pid_t process, FileDescriptor file)
      : file_(std::move(file)), foreign_{process, file_.get(), -1, next_foreign_number(), {}} {}

  bool copy_in(std::uint64_t address, ByteSpan to) override {
    return read_foreign(foreign_, address, to, ReadInto::WATCHED);
  }
  bool copy_out(std::uint64_t, ByteView) override { return false; }
  bool fetch_add(std::uint64_t, std::uint64_t, std::uint64_t&) override { return false; }
  bool compare_swap(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t&) override {
    return false;
  }

  void lose() { file_.release(); }

 private:
  FileDescriptor file_;
  ForeignMemory foreign_;
};

void LentMemories::add(std::uint64_t number, pid_t process, FileDescriptor&& file) {
  const std::string name = name_of(file.get());
  if (!is_memory(file.get(), name)) return;
  FileDescriptor memory = std::move(file);
  if (memories_.size() >= kMost || !leaves_descriptors(memory.get())) return;
  const pid_t known = is_memory_of(process, memory.get(), name) ? process : 0;
  memories_.try_emplace(number, std::make_shared<Memory>(known, std::move(memory)));
}

void LentMemories::lose() {
  for (const auto& [number, memory] : memories_) memory->lose();
}

AddressSpace* LentMemories::find(std::uint64_t number) const {
  const auto found = memories_.find(number);
  return found == memories_.end() ? nullptr : found->second.get();
}

}  // namespace softhca
