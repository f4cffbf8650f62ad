// Payloads in the memory of processes that an adapter serves: a neighbour fetches them there.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "neighbour/lent_memories.hpp"
#include "neighbour/shared_buffers.hpp"
#include "tests/neighbour_pair.hpp"
#include "uabi/process_memory.hpp"

namespace softhca {
namespace {

using testing::NeighbourPair;
using testing::pattern;

constexpr std::uint32_t kBytes = 300'001;
constexpr long kOwn = 2;  // Descriptors of a process's memory: one to write, one to hand over.

// A process with a copy of some bytes, and its memory.
struct Served {
  explicit Served(std::vector<std::uint8_t>& bytes)
      : address(reinterpret_cast<std::uint64_t>(bytes.data())), pid(fork()) {
    if (pid == 0) {
      for (;;) pause();
    }
    auto opened = ProcessMemory::open(pid);
    CHECK(opened.ok());
    memory = std::move(opened.value);
  }
  ~Served() { end(); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  void end() {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }
  MrInfo reg(testing::DriverHost& host) {
    return host
        .call([&](Adapter& adapter) {
          return adapter.reg_region({host.pd, address, kBytes, address, 0xf, nullptr, memory});
        })
        .value;
  }
  std::vector<std::uint8_t> bytes() {
    std::vector<std::uint8_t> read(kBytes);
    CHECK(memory->copy_in(address, read));
    return read;
  }
  // How many descriptors of its memory there are here; `mode`: with this way of access.
  long descriptors(int mode = -1) const {
    const std::string mine = "/proc/" + std::to_string(pid) + "/";
    long count = 0;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const std::string target = std::filesystem::read_symlink(entry.path(), gone);
      if (!target.starts_with(mine) || !target.ends_with("/mem")) continue;
      const int flags = fcntl(std::stoi(entry.path().filename()), F_GETFL);
      count += mode < 0 || (flags & O_ACCMODE) == mode;
    }
    return count;
  }

  const std::uint64_t address;
  pid_t pid;
  std::shared_ptr<ProcessMemory> memory;
};

SendWr request(WrOpcode opcode, const Served& near, const MrInfo& near_mr, const Served& far,
               const MrInfo& far_mr) {
  SendWr wr;
  wr.opcode = opcode;
  wr.send_flags = kSendSignaled;
  wr.remote_address = far.address;
  wr.rkey = far_mr.rkey;
  wr.sges = {{near.address, kBytes, near_mr.lkey}};
  return wr;
}

TEST("neighbour memory: long payloads are fetched from the process that has them") {
  NeighbourPair pair;
  auto first = pattern(kBytes, 1);
  auto second = pattern(kBytes, 2);
  Served near(first);
  Served far(second);
  const MrInfo near_mr = near.reg(pair.a);
  const MrInfo far_mr = far.reg(pair.b);
  CHECK_EQ(near.descriptors(), kOwn);
  CHECK(pair.a.send(pair.qp_a, request(WrOpcode::RDMA_WRITE, near, near_mr, far, far_mr)).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
  CHECK(far.bytes() == first);
  CHECK_EQ(near.descriptors(), kOwn + 1);
  CHECK_EQ(far.descriptors(), kOwn);
  CHECK(far.memory->copy_out(far.address, second));
  CHECK(pair.a.send(pair.qp_a, request(WrOpcode::RDMA_READ, near, near_mr, far, far_mr)).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
  CHECK(near.bytes() == second);
  CHECK_EQ(far.descriptors(), kOwn + 1);
  pair.check_no_datagrams();
}

TEST("neighbour memory: what nobody serves any more is forgotten by the neighbour too") {
  NeighbourPair pair;
  auto bytes = pattern(kBytes, 1);
  auto target = pattern(kBytes, 2);
  Served near(bytes);
  Served another(bytes);
  Served far(target);
  const MrInfo far_mr = far.reg(pair.b);
  for (Served* from : {&near, &another}) {
    const MrInfo mr = from->reg(pair.a);
    CHECK(pair.a.send(pair.qp_a, request(WrOpcode::RDMA_WRITE, *from, mr, far, far_mr)).ok());
    CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
    CHECK_EQ(from->descriptors(), kOwn + 1);
    if (from == &another) break;
    CHECK(pair.a.call([&](Adapter& adapter) { return adapter.dereg_mr(mr.handle); }).ok());
    from->memory.reset();
  }
  CHECK_EQ(near.descriptors(), 0);
}

TEST("neighbour memory: the payload of a process that has ended fails the request") {
  NeighbourPair pair;
  auto bytes = pattern(kBytes, 1);
  auto target = pattern(kBytes, 2);
  Served near(bytes);
  Served far(target);
  const MrInfo near_mr = near.reg(pair.a);
  const MrInfo far_mr = far.reg(pair.b);
  near.end();
  CHECK(pair.a.send(pair.qp_a, request(WrOpcode::RDMA_WRITE, near, near_mr, far, far_mr)).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::LOC_PROT_ERR);
  CHECK(far.bytes() == target);
}

TEST("neighbour memory: without its number the file alone is read, and nothing is written") {
  auto bytes = pattern(kBytes, 1);
  Served served(bytes);
  LentMemories lent;
  lent.add(7, 0, FileDescriptor(dup(served.memory->foreign()->file)));
  CHECK(lent.find(6) == nullptr);
  AddressSpace* space = lent.find(7);
  CHECK(space != nullptr);
  std::vector<std::uint8_t> read(kBytes);
  CHECK(space->copy_in(served.address, read));
  CHECK(read == bytes);
  CHECK(!space->copy_in(8, read));
  CHECK(!space->copy_out(served.address, read));
  lent.remove(7);
  CHECK(lent.find(7) == nullptr);
}

// It would be read by our rights, which may go further than those of who names it.
TEST("neighbour memory: a process is not read because a neighbour names it beside some file") {
  auto bytes = pattern(kBytes, 1);
  auto others = pattern(kBytes, 2);
  Served served(bytes);
  Served other(bytes);
  CHECK(other.memory->copy_out(other.address, others));
  LentMemories lent;
  lent.add(7, served.pid, FileDescriptor(dup(other.memory->foreign()->file)));
  lent.add(8, getpid(), FileDescriptor(dup(other.memory->foreign()->file)));
  std::vector<std::uint8_t> read(kBytes);
  for (const std::uint64_t number : {7u, 8u}) {
    CHECK(lent.find(number)->copy_in(served.address, read));
    CHECK(read == others);
  }
}

// Reading it could take for ever, as of a file whose file system is a program.
TEST("neighbour memory: a file that is no process's memory is none") {
  const FileDescriptor file(memfd_create("no memory", MFD_CLOEXEC));
  CHECK_EQ(ftruncate(file.get(), kBytes), 0);
  const FileDescriptor maps(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  LentMemories lent;
  lent.add(7, 0, FileDescriptor(dup(file.get())));
  lent.add(8, 0, FileDescriptor(dup(maps.get())));
  CHECK(lent.find(7) == nullptr);
  CHECK(lent.find(8) == nullptr);
}

TEST("neighbour memory: who may fetch from a process may not write to it") {
  NeighbourPair pair;
  auto bytes = pattern(kBytes, 1);
  auto target = pattern(kBytes, 2);
  Served near(bytes);
  Served far(target);
  const MrInfo near_mr = near.reg(pair.a);
  const MrInfo far_mr = far.reg(pair.b);
  CHECK(pair.a.send(pair.qp_a, request(WrOpcode::RDMA_WRITE, near, near_mr, far, far_mr)).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
  CHECK_EQ(near.descriptors(O_RDWR), 1);
}

// Threads of drivers look there for each payload that is long, and none of them is in the child.
TEST("neighbour: a child of fork() can use the table of shared buffers") {
  std::atomic<bool> stop{false};
  std::thread looker([&] {
    while (!stop.load()) static_cast<void>(shared_buffers().removals());
  });
  int status = 0;
  for (int forks = 0; forks < 50 && status == 0; ++forks) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      static_cast<void>(shared_buffers().removals());
      _exit(0);
    }
    waitpid(child, &status, 0);
  }
  stop.store(true);
  looker.join();
  CHECK_EQ(status, 0);
}

}  // namespace
}  // namespace softhca
