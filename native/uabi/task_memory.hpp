// Reads and writes the memory of a task whose system call we are answering. The task stands still
// meanwhile, unless it is killed, and its number may be another task's by then. So whoever reads
// asks afterwards if the call is still there, and whoever writes right before.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace softhca {

// Bytes read from `address` on, fewer where the memory ends; 0 if nothing can be read.
std::size_t read_task(pid_t task, std::uint64_t address, void* to, std::size_t length);
// All or, as far as anybody is promised, nothing: false where memory ends or is read-only.
bool write_task(pid_t task, std::uint64_t address, const void* from, std::size_t length);

// True if the calling thread was last told that it may not reach the memory of this task.
bool is_refused(pid_t task);

// A path at `address`; empty if there is none, or it is longer than any that the kernel takes.
std::string read_path(pid_t task, std::uint64_t address);

}  // namespace softhca
