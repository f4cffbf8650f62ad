// The filter is run here as the kernel would run it, over the numbers that decide.

#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tests/check.hpp"
#include "uabi/filter.hpp"

namespace softhca::testing {
namespace {

constexpr DescriptorRange kLow{224, 255};
constexpr DescriptorRange kHigh{896, 1023};
const std::vector<DescriptorRange> kOurs{kHigh, kLow};

// Of BPF, what the filter is made of.
std::uint32_t judge(const std::vector<sock_filter>& program, const seccomp_data& call) {
  std::uint32_t accumulator = 0;
  for (std::size_t at = 0; at < program.size(); ++at) {
    const sock_filter& step = program[at];
    bool holds = false;
    switch (step.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&call) + step.k, 4);
        continue;
      case BPF_RET | BPF_K:
        return step.k;
      case BPF_JMP | BPF_JEQ | BPF_K:
        holds = accumulator == step.k;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        holds = accumulator >= step.k;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        holds = accumulator > step.k;
        break;
      default:
        return SECCOMP_RET_KILL_PROCESS;
    }
    at += holds ? step.jt : step.jf;
  }
  return SECCOMP_RET_KILL_PROCESS;  // Fell off the end, which the kernel would not load.
}

seccomp_data call_of(const Architecture& architecture, std::uint32_t number,
                     std::uint64_t first = 0, std::uint64_t second = 0, std::uint64_t third = 0) {
  seccomp_data call{};
  call.nr = static_cast<int>(number);
  call.arch = architecture.audit;
  call.args[0] = first;
  call.args[1] = second;
  call.args[2] = third;
  return call;
}

constexpr std::uint64_t kCwd = static_cast<std::uint32_t>(AT_FDCWD);

// What the kernel must do with a call of a rule, by its first argument and the rest as it would be
// for an RDMA library.
bool asks(const Architecture& architecture, const SystemCallRule& rule, std::uint64_t first) {
  std::uint64_t second = 0;
  if (rule.call == SystemCall::ioctl) second = kRdmaVerbsIoctl;
  if (rule.call == SystemCall::fcntl) second = F_DUPFD_CLOEXEC;
  return judge(build_filter(architecture, kOurs),
               call_of(architecture, rule.number, first, second)) == SECCOMP_RET_USER_NOTIF;
}

TEST("uabi filter: each call is asked about exactly when it may be ours") {
  for (const Architecture* architecture : {&kX86_64, &kArm64}) {
    for (const SystemCallRule& rule : architecture->rules) {
      const bool by_path = rule.trigger == Trigger::at_cwd || rule.trigger == Trigger::always ||
                           rule.trigger == Trigger::at_cwd_or_ours;
      const bool by_number = rule.trigger == Trigger::ours || rule.trigger == Trigger::always ||
                             rule.trigger == Trigger::at_cwd_or_ours ||
                             rule.trigger == Trigger::duplicate_of_ours ||
                             rule.trigger == Trigger::rdma_request;
      const bool anyway = rule.trigger == Trigger::always || rule.trigger == Trigger::rdma_request;
      CHECK_EQ(asks(*architecture, rule, kCwd), by_path || anyway);
      // The upper half of a descriptor is nothing to the kernel.
      CHECK_EQ(asks(*architecture, rule, kCwd | 0xFFFFFFFF00000000), by_path || anyway);
      // No descriptor at all, which an absolute path needs none of.
      CHECK_EQ(asks(*architecture, rule, 0xFFFFFFFF), by_path || anyway);
      for (const std::uint64_t inside : {224U, 240U, 255U, 896U, 960U, 1023U}) {
        CHECK_EQ(asks(*architecture, rule, inside), by_number);
      }
      for (const std::uint64_t outside : {0U, 3U, 223U, 256U, 895U, 1024U}) {
        CHECK_EQ(asks(*architecture, rule, outside), anyway);
      }
    }
  }
}

TEST("uabi filter: other requests, other commands and other calls go by") {
  for (const Architecture* architecture : {&kX86_64, &kArm64}) {
    const std::vector<sock_filter> filter = build_filter(*architecture, kOurs);
    for (const SystemCallRule& rule : architecture->rules) {
      if (rule.call != SystemCall::ioctl && rule.call != SystemCall::fcntl) continue;
      const seccomp_data call = call_of(*architecture, rule.number, 900, 1);
      CHECK_EQ(judge(filter, call), SECCOMP_RET_ALLOW);
    }
    for (const std::uint32_t number : {0U, 60U, 231U, 500U, 0x7FFFFFFFU}) {
      CHECK_EQ(judge(filter, call_of(*architecture, number, 900)), SECCOMP_RET_ALLOW);
    }
  }
}

TEST("uabi filter: the netlink of RDMA is refused, and no other") {
  for (const Architecture* architecture : {&kX86_64, &kArm64}) {
    const std::vector<sock_filter> filter = build_filter(*architecture, kOurs);
    for (const SystemCallRule& rule : architecture->rules) {
      if (rule.call != SystemCall::socket) continue;
      const auto of = [&](std::uint64_t family, std::uint64_t protocol) {
        return judge(filter, call_of(*architecture, rule.number, family, SOCK_RAW, protocol));
      };
      CHECK_EQ(of(AF_NETLINK, NETLINK_RDMA), SECCOMP_RET_ERRNO | EPROTONOSUPPORT);
      CHECK_EQ(of(AF_NETLINK, NETLINK_ROUTE), SECCOMP_RET_ALLOW);
      CHECK_EQ(of(AF_INET, NETLINK_RDMA), SECCOMP_RET_ALLOW);
    }
  }
}

TEST("uabi filter: programs of another ABI are let alone") {
  seccomp_data call = call_of(kX86_64, 1, 900);
  const std::vector<sock_filter> filter = build_filter(kX86_64, kOurs);
  CHECK_EQ(judge(filter, call), SECCOMP_RET_USER_NOTIF);
  call.arch = AUDIT_ARCH_I386;
  CHECK_EQ(judge(filter, call), SECCOMP_RET_ALLOW);
  CHECK_EQ(judge(filter, call_of(kX86_64, 0x40000001, 900)), SECCOMP_RET_ALLOW);
}

TEST("uabi filter: doorbells that are written go by, whatever else is written does not") {
  for (const Architecture* architecture : {&kX86_64, &kArm64}) {
    const auto filter = build_filter(*architecture, kOurs, Doorbells::written);
    const std::uint32_t number = architecture == &kX86_64 ? 1 : 64;
    const auto judged = [&](std::uint64_t descriptor, std::uint64_t bytes) {
      return judge(filter, call_of(*architecture, number, descriptor, 0x1000, bytes));
    };
    for (const std::uint64_t descriptor : {kLow.first, kLow.last, kHigh.first, kHigh.last}) {
      CHECK_EQ(judged(descriptor, 32), std::uint32_t{SECCOMP_RET_ALLOW});
      CHECK_EQ(judged(descriptor, 24), std::uint32_t{SECCOMP_RET_USER_NOTIF});
      CHECK_EQ(judged(descriptor, 64), std::uint32_t{SECCOMP_RET_USER_NOTIF});
    }
    for (const std::uint64_t descriptor :
         {kLow.first - 1, kLow.last + 1, kHigh.first - 1, kHigh.last + 1}) {
      CHECK_EQ(judged(descriptor, 24), std::uint32_t{SECCOMP_RET_ALLOW});
    }
  }
}

}  // namespace
}  // namespace softhca::testing
