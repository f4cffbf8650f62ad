#include "uabi/pipe_sink.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace softhca {

PipeSink::PipeSink(int write_fd, std::uint64_t user_handle)
    : pipe_(fcntl(write_fd, F_DUPFD_CLOEXEC, 0)), user_handle_(user_handle) {}

void PipeSink::notify(std::uint32_t) {
  if (write(pipe_.get(), &user_handle_, sizeof user_handle_) == sizeof user_handle_) {
    written_.fetch_add(1);
  }
}

}  // namespace softhca
