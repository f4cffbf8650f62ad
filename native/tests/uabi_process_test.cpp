// Memory of another process: reached as long as the program that opened it runs, and not after.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "link/file_descriptor.hpp"
#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"
#include "uabi/process_memory.hpp"

namespace softhca::testing {
namespace {

// A child with a copy of our memory, which does what it is told a letter at a time.
class Child {
 public:
  explicit Child(std::vector<std::uint8_t>& bytes) {
    std::array<int, 2> to_child;
    std::array<int, 2> from_child;
    CHECK(pipe2(to_child.data(), O_CLOEXEC) == 0 && pipe2(from_child.data(), O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0) {
      close(to_child[1]);
      serve(bytes, to_child[0], from_child[1]);
    }
    close(to_child[0]);
    close(from_child[1]);
    orders_.reset(to_child[1]);
    answers_.reset(from_child[0]);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // -1: the child has closed its end, by an exec or by ending.
  int order(char letter) {
    std::uint8_t answer = 0;
    if (write(orders_.get(), &letter, 1) != 1) return -1;
    return read(answers_.get(), &answer, 1) == 1 ? answer : -1;
  }
  void end() {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }

  pid_t pid = -1;

 private:
  // Only calls that may follow a fork of a process with threads.
  [[noreturn]] static void serve(std::vector<std::uint8_t>& bytes, int orders, int answers) {
    char letter = 0;
    while (read(orders, &letter, 1) == 1) {
      if (letter == 'x') {
        dup2(orders, 0);  // The next program waits for orders too, and its descriptor survives.
        execl("/bin/cat", "cat", nullptr);
        _exit(1);
      }
      const std::uint8_t answer = letter == 'r' ? bytes[0] : ++bytes[0];
      if (write(answers, &answer, 1) != 1) break;
    }
    _exit(0);
  }

  FileDescriptor orders_;
  FileDescriptor answers_;
};

std::uint64_t address_of(const std::vector<std::uint8_t>& bytes) {
  return reinterpret_cast<std::uint64_t>(bytes.data());
}

TEST("uabi process: bytes go there and come from there") {
  std::vector<std::uint8_t> bytes(10000, 1);
  Child child(bytes);
  const auto memory = ProcessMemory::open(child.pid);
  CHECK(memory.ok());
  ProcessMemory& space = *memory.value;
  const std::vector<std::uint8_t> other(10000, 77);
  CHECK(space.copy_out(address_of(bytes), other));
  CHECK_EQ(child.order('r'), 77);
  CHECK_EQ(bytes[0], 1);
  CHECK_EQ(child.order('+'), 78);
  std::vector<std::uint8_t> seen(10000);
  CHECK(space.copy_in(address_of(bytes), seen));
  CHECK_EQ(seen[0], 78);
  CHECK_EQ(seen[9999], 77);
  std::uint64_t original = 0;
  const std::uint64_t word = (address_of(bytes) + 15) / 8 * 8;
  CHECK(space.fetch_add(word, 3, original));
  CHECK_EQ(original, 0x4d4d4d4d4d4d4d4du);
  CHECK(space.compare_swap(word, 1, 2, original));
  CHECK_EQ(original, 0x4d4d4d4d4d4d4d50u);
  CHECK(space.compare_swap(word, 0x4d4d4d4d4d4d4d50u, 2, original));
  CHECK(space.compare_swap(word, 2, 2, original));
  CHECK_EQ(original, 2u);
}

TEST("uabi process: what is not there is a false, wherever it is") {
  std::vector<std::uint8_t> bytes(64);
  Child child(bytes);
  const auto memory = ProcessMemory::open(child.pid);
  CHECK(memory.ok());
  std::array<std::uint8_t, 16> some{};
  std::uint64_t original = 0;
  for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{1} << 47,
                                      std::uint64_t{1} << 63, ~std::uint64_t{0} - 7}) {
    CHECK(!memory.value->copy_in(address, some));
    CHECK(!memory.value->copy_out(address, some));
    CHECK(!memory.value->fetch_add(address & ~std::uint64_t{7}, 1, original));
  }
}

TEST("uabi process: after its death or an exec nothing is reached, and it is not found again") {
  std::vector<std::uint8_t> bytes(1 << 16, 5);
  std::array<std::uint8_t, 8> some{};
  std::vector<std::uint8_t> many(bytes.size());
  Child replaced(bytes);
  const auto before = ProcessMemory::open(replaced.pid);
  CHECK(before.ok() && before.value->copy_in(address_of(bytes), some));
  CHECK_EQ(replaced.order('x'), -1);
  CHECK(before.value->is_gone());
  CHECK(!before.value->copy_in(address_of(bytes), some));
  CHECK(!before.value->copy_out(address_of(bytes), some));
  CHECK(!before.value->copy_in(address_of(bytes), many));
  CHECK(!before.value->copy_out(address_of(bytes), many));
  Child killed(bytes);
  const auto memory = ProcessMemory::open(killed.pid);
  CHECK(memory.ok() && memory.value->copy_in(address_of(bytes), many));
  CHECK(many == bytes);
  CHECK(!memory.value->is_gone());
  const pid_t pid = killed.pid;
  killed.end();
  CHECK(memory.value->is_gone());
  CHECK(!memory.value->copy_in(address_of(bytes), some));
  CHECK(!memory.value->copy_out(address_of(bytes), some));
  CHECK(!memory.value->copy_in(address_of(bytes), many));
  CHECK(!memory.value->copy_out(address_of(bytes), many));
  CHECK_EQ(ProcessMemory::open(pid).status.error, ESRCH);
}

TEST("uabi process: requests that meet a dead program's memory fail, on both sides") {
  Pair pair(seed());
  std::vector<std::uint8_t> bytes(8192, 5);
  Child child(bytes);
  const auto memory = ProcessMemory::open(child.pid);
  CHECK(memory.ok());
  const auto region = [&](Host& host) {
    return host.adapter
        ->reg_region({host.pd, address_of(bytes), bytes.size(), address_of(bytes), 0xf, nullptr,
                      memory.value})
        .value;
  };
  const MrInfo near = region(pair.a);
  const MrInfo far = region(pair.b);
  std::vector<std::uint8_t> ours(8192, 9);
  const MrInfo own = pair.a.reg(ours);
  const auto write = [&](const MrInfo& from, const MrInfo& to, bool by_child) {
    const std::uint32_t qa = pair.a.qp();
    const std::uint32_t qb = pair.b.qp();
    CHECK(pair.connect(true, qa, QpType::RC, qb, 1, 2).ok());
    CHECK(pair.connect(false, qb, QpType::RC, qa, 2, 1).ok());
    SendWr wr;
    wr.opcode = WrOpcode::RDMA_WRITE;
    wr.remote_address = address_of(bytes);
    wr.rkey = to.rkey;
    wr.sges = {{by_child ? address_of(bytes) : address_of(ours), 8192, from.lkey}};
    wr.send_flags = kSendSignaled;
    CHECK(pair.send(true, qa, wr).ok());
    pair.run();
    const auto polled = pair.a.poll();
    CHECK_EQ(polled.size(), 1u);
    return polled[0].status;
  };
  CHECK(write(own, far, false) == WcStatus::SUCCESS);
  CHECK_EQ(child.order('r'), 9);
  CHECK(write(near, far, true) == WcStatus::SUCCESS);
  child.end();
  // Silence, as of a host that crashed; what was asked of it is not refused.
  CHECK(write(own, far, false) == WcStatus::RETRY_EXC_ERR);
  CHECK(write(near, far, true) == WcStatus::LOC_PROT_ERR);
}

}  // namespace
}  // namespace softhca::testing
