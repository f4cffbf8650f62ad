// What the kernel says to a call for its other arguments, before it looks at the path.
#pragma once

#include "uabi/notification.hpp"

namespace softhca {

// Whether a call must go to the kernel whatever its path is: it refuses it (EINVAL, E2BIG, EFAULT),
// or begins the path elsewhere than it says (openat2(2), which may forbid that with EXDEV).
bool is_decided_without_path(const Notification& call);

}  // namespace softhca
