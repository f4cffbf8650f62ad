#include "driver/driver.hpp"

#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "adapter/path_mtu.hpp"
#include "driver/completion_channel.hpp"
#include "tests/driver_hosts.hpp"

namespace softhca {
namespace {

using namespace testing;
using Bytes = std::vector<std::uint8_t>;

bool wait_readable(int fd) {
  pollfd waited{fd, POLLIN, 0};
  return ::poll(&waited, 1, kPatienceMs) == 1;
}

// Writes `size` bytes from a to b and reads them back, while b's owner makes no call.
void write_and_read_back(DriverPair& pair, std::size_t size, std::uint8_t seed) {
  Bytes source = pattern(size, seed), target(size), back(size);
  const MrInfo source_mr = pair.a.reg(source), back_mr = pair.a.reg(back);
  const MrInfo target_mr = pair.b.reg(target);
  const SendWr write = rdma(WrOpcode::RDMA_WRITE, source, source_mr, target, target_mr);
  const SendWr read = rdma(WrOpcode::RDMA_READ, back, back_mr, target, target_mr);
  CHECK(pair.a.send(pair.qp_a, write).ok());
  CHECK(pair.a.send(pair.qp_a, read).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
  CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
  CHECK(back == source);
  CHECK(target == source);
  CHECK(pair.a.call([&](Adapter& adapter) { return adapter.dereg_mr(source_mr.handle); }).ok());
  CHECK(pair.a.call([&](Adapter& adapter) { return adapter.dereg_mr(back_mr.handle); }).ok());
  CHECK(pair.b.call([&](Adapter& adapter) { return adapter.dereg_mr(target_mr.handle); }).ok());
}

TEST("driver: a peer that makes no call is written and read") {
  DriverPair pair;
  for (const std::size_t size : {0u, 1u, 4096u, 100'000u, 4'000'000u}) {
    write_and_read_back(pair, size, static_cast<std::uint8_t>(size));
  }
}

TEST("driver: a peer that polled once and stopped is still served") {
  DriverPair pair;
  std::array<Completion, 1> out;
  for (std::uint8_t i = 0; i < 50; ++i) {
    CHECK_EQ(pair.b.driver().poll_cq(pair.b.cq, out).value, std::size_t{0});
    write_and_read_back(pair, 64, i);
  }
}

TEST("driver: an owner that never polls is told of its completion") {
  Bytes bytes = pattern(4096, 1), target(4096);
  DriverPair pair;
  const MrInfo mr = pair.a.reg(bytes), target_mr = pair.b.reg(target);
  const auto channel = std::make_shared<CompletionChannel>();
  CHECK_EQ(channel->open(), 0);
  const std::uint32_t number = pair.a.driver().completion_sinks().add(channel);
  CHECK(pair.a.call([&](Adapter& adapter) { return adapter.attach_cq(pair.a.cq, number); }).ok());
  for (int i = 0; i < 20; ++i) {
    CHECK(pair.a.call([&](Adapter& adapter) { return adapter.req_notify_cq(pair.a.cq, 2); }).ok());
    CHECK(pair.a.send(pair.qp_a, rdma(WrOpcode::RDMA_WRITE, bytes, mr, target, target_mr)).ok());
    CHECK(wait_readable(channel->fd()));
    CHECK_EQ(channel->pop(), pair.a.cq);
    CHECK_EQ(channel->pop(), std::uint32_t{0});
    CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
  }
}

TEST("driver: asynchronous events come through their descriptor") {
  Bytes bytes(64), target(64);
  DriverPair pair;
  const MrInfo mr = pair.a.reg(bytes), target_mr = pair.b.reg(target, kAccessLocalWrite);
  SendWr wr = rdma(WrOpcode::RDMA_WRITE, bytes, mr, target, target_mr);
  wr.rkey = target_mr.lkey;  // A key without remote rights: the responder's QP fails.
  CHECK(pair.a.send(pair.qp_a, wr).ok());
  CHECK_EQ(pair.a.wait().status, WcStatus::REM_ACCESS_ERR);
  Driver& driver = pair.b.driver();
  bool seen = false;
  AsyncEvent event;
  while (!seen && wait_readable(driver.event_fd()) && driver.next_event(event).value) {
    seen = event.type == EventType::QP_ACCESS_ERR && event.object == pair.qp_b;
  }
  CHECK(seen);
}

TEST("driver: memory that is gone when a peer reads it fails the request, not the process") {
  constexpr std::size_t kBytes = 1 << 16;
  Bytes back(kBytes);
  DriverPair pair;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  const auto address = reinterpret_cast<std::uint64_t>(mapped);
  const MrInfo gone_mr = pair.b
                             .call([&](Adapter& adapter) {
                               return adapter.reg_mr(pair.b.pd, address, kBytes, address, 0xf);
                             })
                             .value;
  SendWr read = rdma(WrOpcode::RDMA_READ, back, pair.a.reg(back), back, gone_mr);
  read.remote_address = address;
  // What is left in its place cannot be read, and keeps other mappings away from there.
  CHECK(mmap(mapped, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mapped);
  CHECK(pair.a.send(pair.qp_a, read).ok());
  const WcStatus status = pair.a.wait().status;
  CHECK(status == WcStatus::REM_ACCESS_ERR || status == WcStatus::REM_OP_ERR);
  munmap(mapped, kBytes);
}

TEST("driver: packets to the own address stay inside") {
  Bytes source = pattern(1'000'000, 3), target(source.size());
  DriverHost host;
  const std::uint32_t one = host.create_qp(), other = host.create_qp();
  host.connect(one, host.gid(), other);
  host.connect(other, host.gid(), one);
  const MrInfo source_mr = host.reg(source), target_mr = host.reg(target);
  CHECK(host.send(one, rdma(WrOpcode::RDMA_WRITE, source, source_mr, target, target_mr)).ok());
  CHECK_EQ(host.wait().status, WcStatus::SUCCESS);
  CHECK(target == source);
  CHECK_EQ(host.driver().counters().udp.sent, std::uint64_t{0});
}

TEST("driver: every byte is right on a bad network") {
  OpenOptions bad;
  bad.faults.send =
      bad.faults.receive = {.drop = 0.02, .duplicate = 0.02, .reorder = 0.02, .corrupt = 0.02};
  bad.faults.seed = 11;
  DriverPair pair(bad, {});
  for (std::uint8_t i = 0; i < 10; ++i) write_and_read_back(pair, 300'000, i);
  const DriverCounters counters = pair.a.driver().counters();
  CHECK(counters.sent_faults.dropped > 0 && counters.sent_faults.corrupted > 0);
  CHECK(counters.received_faults.duplicated > 0 && counters.received_faults.reordered > 0);
}

TEST("driver: a bad network inside the adapter, too") {
  OpenOptions bad;
  bad.faults.send = {.drop = 0.05, .duplicate = 0.05, .reorder = 0.05, .corrupt = 0.05};
  Bytes source = pattern(1'000'000, 3), target(source.size());
  DriverHost host(bad);
  const std::uint32_t one = host.create_qp(), other = host.create_qp();
  host.connect(one, host.gid(), other);
  host.connect(other, host.gid(), one);
  const MrInfo source_mr = host.reg(source), target_mr = host.reg(target);
  CHECK(host.send(one, rdma(WrOpcode::RDMA_WRITE, source, source_mr, target, target_mr)).ok());
  CHECK_EQ(host.wait().status, WcStatus::SUCCESS);
  CHECK(target == source);
}

TEST("driver: threads post and poll at once") {
  DriverPair pair;
  std::vector<std::thread> threads;
  for (std::uint8_t i = 0; i < 4; ++i) {
    threads.emplace_back([&pair, i] {
      const auto new_cq = [](Adapter& adapter) { return adapter.create_cq(64); };
      DriverHost& from = i % 2 == 0 ? pair.a : pair.b;
      DriverHost& to = i % 2 == 0 ? pair.b : pair.a;
      const std::uint32_t cq = from.call(new_cq).value;
      QpInit init;
      init.pd = from.pd;
      init.send_cq = init.recv_cq = cq;
      init.cap = {16, 16, 1, 1, 0};
      const std::uint32_t qpn =
          from.call([&](Adapter& adapter) { return adapter.create_qp(init); }).value;
      const std::uint32_t peer = to.create_qp();
      from.connect(qpn, to.gid(), peer);
      to.connect(peer, from.gid(), qpn);
      Bytes source = pattern(20'000, i), target(source.size());
      const MrInfo source_mr = from.reg(source), target_mr = to.reg(target);
      for (int round = 0; round < 50; ++round) {
        const SendWr wr = rdma(WrOpcode::RDMA_WRITE, source, source_mr, target, target_mr);
        CHECK(from.send(qpn, wr).ok());
        CHECK_EQ(from.wait(cq).status, WcStatus::SUCCESS);
      }
      CHECK(target == source);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST("driver: closing is final, idempotent, and frees the address") {
  DriverPair pair;
  write_and_read_back(pair, 1000, 1);
  const std::string address = format_gid(pair.a.gid());
  pair.a.driver().close();
  pair.a.driver().close();
  CHECK_EQ(pair.a.driver().usable().error, ENODEV);
  CHECK_EQ(pair.a.call([](Adapter& adapter) { return adapter.alloc_pd(); }).status.error, ENODEV);
  std::array<Completion, 1> out;
  CHECK_EQ(pair.a.driver().poll_cq(pair.a.cq, out).status.error, ENODEV);
  CHECK_EQ(pair.a.driver().join_group(Gid{}).error, ENODEV);
  OpenOptions options;
  options.address = address;
  OpenedDevice again;
  CHECK(open_device(options, again).ok());
  CHECK(again.local.gid == pair.a.gid());
}

TEST("driver: closing waits for who meets a neighbour, and leaves alone who polls") {
  for (int times = 0; times < 10; ++times) {
    DriverPair pair;
    Driver& driver = pair.a.driver();
    if (times % 2 == 0) driver.meet(pair.b.gid(), kPatienceMs);
    std::atomic<int> polls{0};
    std::atomic<bool> stop{false};
    std::thread poller([&] {
      std::array<Completion, 1> out;
      for (; !stop.load(); ++polls) static_cast<void>(driver.poll_cq(pair.a.cq, out));
    });
    std::thread guest([&] {
      while (!stop.load()) driver.meet(pair.b.gid(), kPatienceMs);
    });
    while (polls.load() < 100) std::this_thread::yield();
    driver.close();
    CHECK(polls.load() >= 100);
    stop.store(true);
    poller.join();
    guest.join();
  }
}

// The child's verdict is its exit status: 0 if all held.
int use_device_in_child(DriverPair& pair) {
  int wrong = 0;
  std::array<Completion, 1> out;
  wrong += pair.a.driver().usable().error != EIO;
  wrong += pair.a.call([](Adapter& adapter) { return adapter.alloc_pd(); }).status.error != EIO;
  wrong += pair.a.driver().poll_cq(pair.a.cq, out).status.error != EIO;
  wrong += pair.a.driver().join_group(Gid{}).error != EIO;
  pair.a.device = {};
  pair.b.device = {};
#ifndef __SANITIZE_THREAD__  // It allows no threads in such a child.
  // A device of the child's own works.
  DriverPair own;
  write_and_read_back(own, 10'000, 9);
#endif
  return wrong;
}

TEST("driver: fork() leaves the child without a device and the parent undisturbed") {
  DriverPair pair;
  // Forks fall into the middle of traffic: wherever the threads are, the child must not hang. Not
  // under a sanitizer: in the child its allocator's locks stay as another thread held them.
  std::atomic<bool> stop{false};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  write_and_read_back(pair, 20'000, 1);
  std::thread traffic;
#else
  std::thread traffic([&] {
    for (std::uint8_t i = 0; !stop.load(); ++i) write_and_read_back(pair, 20'000, i);
  });
#endif
  int bad_children = 0;
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      try {
        _exit(use_device_in_child(pair));
      } catch (...) {
        _exit(99);  // A failed check must not end the parent's test a second time.
      }
    }
    int status = -1;
    waitpid(child, &status, 0);
    bad_children += status != 0;
  }
  stop.store(true);
  if (traffic.joinable()) traffic.join();
  CHECK_EQ(bad_children, 0);
  CHECK(pair.a.driver().usable().ok());
  write_and_read_back(pair, 100'000, 4);
}

TEST("driver: a capture is complete when the device is closed") {
  char path[] = "/tmp/softhca-driver-XXXXXX";
  ::close(mkstemp(path));
  OpenOptions options;
  options.capture_path = path;
  {
    DriverPair pair(options, {});
    write_and_read_back(pair, 10'000, 1);
    // WRITE: 3 packets and an ACK at least; READ: a request and 3 responses.
    CHECK(pair.a.driver().counters().captured_pkts >= 8);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  CHECK(content.size() > 20'000);
  CHECK(content.find("wr_id 0") != std::string::npos);
  OpenOptions impossible;
  impossible.capture_path = "/nonexistent/x.pcapng";
  OpenedDevice device;
  CHECK_EQ(open_device(impossible, device).error, ENOENT);
  CHECK(device.driver == nullptr);
  unlink(path);
}

TEST("driver: the path MTU leaves room for every header") {
  CHECK_EQ(path_mtu_code(65536, true), 5);
  CHECK_EQ(path_mtu_code(4176, true), 5);
  CHECK_EQ(path_mtu_code(4175, true), 4);
  CHECK_EQ(path_mtu_code(4176, false), 4);
  CHECK_EQ(path_mtu_code(1500, true), 3);
  CHECK_EQ(path_mtu_code(1500, false), 3);
  CHECK_EQ(path_mtu_code(576, true), 1);
  CHECK_EQ(path_mtu_code(68, true), 1);
}

// The descriptors of this process that lead to what `prefix` says, such as "socket:".
std::vector<int> open_descriptors(const std::string& prefix) {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    char target[64] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target, sizeof target - 1) < 0) continue;
    if (std::string(target).starts_with(prefix)) found.push_back(fd);
  }
  return found;
}

// The C library's own, which the driver's thread uses to list addresses; without it the library
// ends the process.
bool is_of_c_library(int fd) {
  sockaddr_nl name{};
  socklen_t size = sizeof name;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
         name.nl_family == AF_NETLINK && name.nl_groups == 0;
}

// Opens a device, closes its descriptors of a kind under it, and waits for it to say so.
void lose_descriptors(const std::string& prefix) {
  const std::vector<int> before = open_descriptors(prefix);
  Bytes bytes(64), target(64);
  DriverPair pair;
  std::vector<int> lost;
  for (const int fd : open_descriptors(prefix)) {
    const bool is_new = std::find(before.begin(), before.end(), fd) == before.end();
    if (is_new && !is_of_c_library(fd)) lost.push_back(fd);
  }
  CHECK(!lost.empty());
  // Not by close(): a thread sanitizer would rightly call it a race.
  for (const int fd : lost) syscall(SYS_close, fd);
  // Traffic makes the driver look at what it waits on; some of it may still get through.
  const SendWr write =
      rdma(WrOpcode::RDMA_WRITE, bytes, pair.a.reg(bytes), target, pair.b.reg(target));
  const std::uint64_t until_ns = monotonic_ns() + kPatienceNs;
  WcStatus status = WcStatus::SUCCESS;
  while (status == WcStatus::SUCCESS && monotonic_ns() < until_ns) {
    CHECK(pair.a.send(pair.qp_a, write).ok());
    status = pair.a.wait().status;
  }
  CHECK_EQ(status, WcStatus::WR_FLUSH_ERR);
  CHECK(wait_readable(pair.a.driver().event_fd()));
  AsyncEvent event;
  CHECK(pair.a.driver().next_event(event).value);
  CHECK(event.type == EventType::DEVICE_FATAL);
}

TEST("driver: a device whose sockets were closed under it has failed, and says so") {
  lose_descriptors("socket:");
}

TEST("driver: a device whose epoll set was closed under it has failed, and says so") {
  lose_descriptors("anon_inode:[eventpoll]");
}

// Closes all that are not among `before` under those who have them.
std::vector<int> take_new(const std::vector<int>& before) {
  std::vector<int> lost;
  for (const int fd : open_descriptors("")) {
    const bool is_new = std::find(before.begin(), before.end(), fd) == before.end();
    if (is_new && !is_of_c_library(fd)) lost.push_back(fd);
  }
  for (const int fd : lost) syscall(SYS_close, fd);
  return lost;
}

void wait_until_failed(DriverHost& host) {
  AsyncEvent event;
  const std::uint64_t until_ns = monotonic_ns() + kPatienceNs;
  while (!host.driver().next_event(event).value) CHECK(monotonic_ns() < until_ns);
  CHECK(event.type == EventType::DEVICE_FATAL);
}

// Numbers of descriptors are used again, by whoever comes next.
void use_again(const std::vector<int>& lost) {
  const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : lost) CHECK_EQ(dup2(other, fd), fd);
  if (std::find(lost.begin(), lost.end(), other) == lost.end()) close(other);
}

TEST("driver: a device that has lost its descriptors closes nobody else's") {
  const std::vector<int> before = open_descriptors("");
  std::vector<int> lost;
  {
    DriverPair pair;
    const auto channel = std::make_shared<CompletionChannel>();
    CHECK_EQ(channel->open(), 0);
    pair.a.driver().completion_sinks().add(channel);
    pair.a.driver().meet(pair.b.gid(), kPatienceMs);
    lost = take_new(before);
    wait_until_failed(pair.a);
    wait_until_failed(pair.b);
    use_again(lost);
  }
  for (const int fd : lost) CHECK_EQ(close(fd), 0);
}

TEST("driver: a device that finds its socket closed closes nobody else's descriptors") {
  Bytes bytes(64);
  DriverHost peer;
  const std::vector<int> before = open_descriptors("");
  std::vector<int> lost;
  {
    DriverHost host;
    const std::uint32_t qpn = host.create_qp();
    host.connect(qpn, peer.gid(), peer.create_qp());
    const SendWr write = rdma(WrOpcode::RDMA_WRITE, bytes, host.reg(bytes), bytes, {});
    lost = take_new(before);
    CHECK(host.send(qpn, write).ok());
    wait_until_failed(host);
    use_again(lost);
  }
  for (const int fd : lost) CHECK_EQ(close(fd), 0);
}

}  // namespace
}  // namespace softhca
