#include "uabi/filter.hpp"

#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "uabi/doorbell_record.hpp"

namespace softhca {
namespace {

constexpr std::uint32_t kNumber = offsetof(seccomp_data, nr);
constexpr std::uint32_t kArchitecture = offsetof(seccomp_data, arch);

// Only the lower halves of arguments are looked at: descriptors and requests are 32 bits to the
// kernel, whatever a program leaves above them. Both architectures are little endian.
constexpr std::uint32_t argument(std::uint32_t index) {
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args)) + 8 * index;
}

constexpr sock_filter load(std::uint32_t offset) {
  return {BPF_LD | BPF_W | BPF_ABS, 0, 0, offset};
}
constexpr sock_filter give(std::uint32_t action) { return {BPF_RET | BPF_K, 0, 0, action}; }
// Jumps are relative: how many instructions to leave out, if it holds and if it does not.
constexpr sock_filter if_equal(std::uint32_t value, std::uint8_t held, std::uint8_t failed) {
  return {BPF_JMP | BPF_JEQ | BPF_K, held, failed, value};
}
constexpr sock_filter if_at_least(std::uint32_t value, std::uint8_t held, std::uint8_t failed) {
  return {BPF_JMP | BPF_JGE | BPF_K, held, failed, value};
}
constexpr sock_filter if_above(std::uint32_t value, std::uint8_t held, std::uint8_t failed) {
  return {BPF_JMP | BPF_JGT | BPF_K, held, failed, value};
}

constexpr sock_filter kAllow = give(SECCOMP_RET_ALLOW);
constexpr sock_filter kAsk = give(SECCOMP_RET_USER_NOTIF);
// AT_FDCWD, and whatever else is no descriptor: to an absolute path it makes no difference.
constexpr std::uint32_t kFirstNegative = 0x80000000;

using Program = std::vector<sock_filter>;

Program operator+(Program first, const Program& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// `then`, if the first argument is a descriptor in one of the ranges.
Program where_ours(const std::vector<DescriptorRange>& ours, const Program& then) {
  Program program = {load(argument(0))};
  // Most descriptors of most programs are below all ranges, and judged by one look.
  if (!ours.empty()) {
    program.push_back(if_at_least(std::ranges::min(ours, {}, &DescriptorRange::first).first, 1, 0));
    program.push_back(kAllow);
  }
  for (std::size_t at = 0; at < ours.size(); ++at) {
    // Behind the ranges that follow, and behind the answer where it is in none.
    const auto to_then = static_cast<std::uint8_t>(2 * (ours.size() - 1 - at) + 1);
    program.push_back(if_at_least(ours[at].first, 0, 1));
    program.push_back(if_above(ours[at].last, 0, to_then));
  }
  program.push_back(kAllow);
  return program + then;
}

// What follows once the number of the call has matched; each list ends in an answer on every way.
Program condition(Trigger trigger, const std::vector<DescriptorRange>& ours) {
  switch (trigger) {
    case Trigger::always:
      return {kAsk};
    case Trigger::at_cwd:
      return {load(argument(0)), if_at_least(kFirstNegative, 0, 1), kAsk, kAllow};
    case Trigger::at_cwd_or_ours:
      return Program{load(argument(0)), if_at_least(kFirstNegative, 0, 1), kAsk} +
             where_ours(ours, {kAsk});
    case Trigger::ours:
      return where_ours(ours, {kAsk});
    case Trigger::rdma_request:
      return {load(argument(1)), if_equal(kRdmaVerbsIoctl, 0, 1), kAsk, kAllow};
    case Trigger::duplicate_of_ours:
      return Program{load(argument(1)), if_equal(F_DUPFD, 2, 0), if_equal(F_DUPFD_CLOEXEC, 1, 0),
                     kAllow} +
             where_ours(ours, {kAsk});
    case Trigger::rdma_netlink:
      return {load(argument(0)),
              if_equal(AF_NETLINK, 0, 3),
              load(argument(2)),
              if_equal(NETLINK_RDMA, 0, 1),
              give(SECCOMP_RET_ERRNO | EPROTONOSUPPORT),
              kAllow};
  }
  return {kAllow};
}

// Of write(2), by its length alone: a filter cannot see what is written.
Program all_but_doorbells(const std::vector<DescriptorRange>& ours) {
  return where_ours(ours, {load(argument(2)), if_equal(kDoorbellBytes, 1, 0), kAsk, kAllow});
}

}  // namespace

std::vector<sock_filter> build_filter(const Architecture& architecture,
                                      const std::vector<DescriptorRange>& ours,
                                      Doorbells doorbells) {
  std::vector<sock_filter> program = {
      load(kArchitecture),
      if_equal(architecture.audit, 1, 0),
      kAllow,
      load(kNumber),
      if_at_least(architecture.first_foreign_number, 0, 1),
      kAllow,
  };
  for (const SystemCallRule& rule : architecture.rules) {
    const bool lets_doorbells_by =
        doorbells == Doorbells::written && rule.call == SystemCall::write;
    const std::vector<sock_filter> then =
        lets_doorbells_by ? all_but_doorbells(ours) : condition(rule.trigger, ours);
    program.push_back(if_equal(rule.number, 0, static_cast<std::uint8_t>(then.size())));
    program.insert(program.end(), then.begin(), then.end());
  }
  program.push_back(kAllow);
  return program;
}

}  // namespace softhca
