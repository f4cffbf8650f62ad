// Kernels that know fewer options than Linux, as emulators of one do.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/check.hpp"
#include "tests/udp_links.hpp"

namespace softhca::testing {
namespace {

struct Option {
  std::uint32_t level;
  std::uint32_t name;
};

sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
sock_filter unless(std::uint32_t value, std::uint8_t steps_to_skip) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, steps_to_skip);
}
sock_filter answer(std::uint32_t value) { return BPF_STMT(BPF_RET | BPF_K, value); }

// From here on, this process's kernel does not know these options.
bool forget(const std::vector<Option>& options) {
  std::vector<sock_filter> steps = {load(offsetof(seccomp_data, nr)), unless(SYS_setsockopt, 1),
                                    BPF_STMT(BPF_JMP | BPF_JA, 1), answer(SECCOMP_RET_ALLOW)};
  for (const Option& option : options) {
    steps.push_back(load(offsetof(seccomp_data, args[1])));
    steps.push_back(unless(option.level, 3));
    steps.push_back(load(offsetof(seccomp_data, args[2])));
    steps.push_back(unless(option.name, 1));
    steps.push_back(answer(SECCOMP_RET_ERRNO | ENOPROTOOPT));
  }
  steps.push_back(answer(SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(steps.size()), steps.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST("link udp: a kernel that knows fewer options will do") {
  const pid_t child = fork();
  if (child == 0) {
    // No way to leave out checksums, nor to say by which interface groups are reached.
    const bool forgot = forget({{SOL_SOCKET, SO_NO_CHECK},
                                {IPPROTO_IP, IP_MULTICAST_IF},
                                {IPPROTO_IPV6, IPV6_MULTICAST_IF}});
    if (!forgot) _exit(1);
    const FileDescriptor probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int one = 1;
    if (setsockopt(probe.get(), SOL_SOCKET, SO_NO_CHECK, &one, sizeof one) == 0) _exit(2);
    for (const char* address : {"", "::1"}) {
      UdpOptions options;
      options.address = address;
      std::unique_ptr<UdpLink> link;
      const LinkError error = open_when_free(options, link);
      if (!error.ok() && error.error != EADDRNOTAVAIL && error.error != EAFNOSUPPORT) _exit(3);
    }
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

}  // namespace
}  // namespace softhca::testing
