// Descriptors of a task whose system call we are answering.
#pragma once

#include <sys/types.h>

namespace softhca {

// The process that a task is a thread of; -1 if there is none.
pid_t process_of(pid_t task);

// A copy of a descriptor of a task: the same open file, not another one of the same name. The
// caller's to close; -1 and errno, if it cannot be had.
int take_descriptor(pid_t task, int descriptor);

}  // namespace softhca
