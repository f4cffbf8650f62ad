// A program on the other side of mapped rings, which does what libibverbs' rxe provider does.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"
#include "uabi/mapped_queues.hpp"
#include "uabi/mapped_ring.hpp"
#include "uabi/ring_file.hpp"
#include "uabi/rxe_layout.hpp"

namespace softhca::testing {

// A ring, and a mapping of it of the program's own.
class ProgramRing {
 public:
  ProgramRing(const std::shared_ptr<RingFile>& file, std::uint32_t element_bytes,
              std::uint32_t elements)
      : ring(MappedRing::make(file, element_bytes, elements).value) {
    void* mapped = mmap(nullptr, ring->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(),
                        static_cast<off_t>(ring->offset()));
    CHECK(mapped != MAP_FAILED);
    memory = static_cast<std::uint8_t*>(mapped);
  }
  ~ProgramRing() { munmap(memory, ring->bytes()); }
  ProgramRing(const ProgramRing&) = delete;
  ProgramRing& operator=(const ProgramRing&) = delete;

  std::uint32_t producer() const { return word(128); }
  std::uint32_t consumer() const { return word(256); }
  std::uint32_t mask() const { return word(4); }
  bool empty() const { return producer() == consumer(); }
  bool full() const { return ((producer() + 1) & mask()) == consumer(); }
  std::uint8_t* element(std::uint32_t index) const {
    return memory + 384 + (std::size_t{index & mask()} << word(0));
  }
  void produce() { store(128, (producer() + 1) & mask()); }
  void consume() { store(256, (consumer() + 1) & mask()); }
  void store(std::size_t at, std::uint32_t value) const {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(memory + at), value, __ATOMIC_RELEASE);
  }
  std::uint32_t word(std::size_t at) const {
    return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(memory + at), __ATOMIC_ACQUIRE);
  }

  std::shared_ptr<MappedRing> ring;
  std::uint8_t* memory = nullptr;
};

// Word by word, as atomics: another thread of the program may write there at the same moment.
template <class T>
void put_field(std::uint8_t* element, std::size_t at, T value) {
  static_assert(sizeof value % sizeof(std::uint32_t) == 0);
  std::uint32_t words[sizeof value / sizeof(std::uint32_t)];
  std::memcpy(words, &value, sizeof value);
  auto* to = reinterpret_cast<std::uint32_t*>(element + at);
  for (const std::uint32_t word : words) __atomic_store_n(to++, word, __ATOMIC_RELAXED);
}
template <class T>
T get_field(const std::uint8_t* element, std::size_t at) {
  T value;
  std::memcpy(&value, element + at, sizeof value);
  return value;
}

// What a program polls.
struct ProgramCompletion {
  std::uint64_t wr_id;
  WcStatus status;
  WcOpcode opcode;
  std::uint32_t byte_len;
  std::uint32_t extra;
  std::uint32_t qpn;
  std::uint32_t source_qpn;
  std::uint32_t wc_flags;
};

struct ProgramQp {
  std::uint32_t qpn = 0;
  std::unique_ptr<ProgramRing> sq;
  std::unique_ptr<ProgramRing> rq;
};

// The objects of one program on one host of a Pair.
class Program {
 public:
  static constexpr std::uint32_t kDepth = 15;
  static constexpr std::uint32_t kSges = 4;
  static constexpr std::uint32_t kInline = 64;
  static constexpr std::uint32_t kSendElement = kSendElementHeader + 64;
  static constexpr std::uint32_t kReceiveElement = kReceiveElementHeader + kSges * kSgeBytes;

  Program(Pair& pair, bool is_a, std::uint32_t cqe = 255)
      : host(pair.host(is_a)),
        pair_(pair),
        is_a_(is_a),
        file(RingFile::make().value),
        cq_ring(std::make_unique<ProgramRing>(file, kCompletionBytes, cqe + 1)) {
    cq = host.adapter->create_cq(cqe).value;
    CHECK(host.adapter->lead_cq(cq, std::make_shared<MappedCompletions>(cq_ring->ring)).ok());
  }

  ProgramQp qp(QpType type, std::uint32_t srq = 0) {
    QpInit init;
    init.type = type;
    init.pd = host.pd;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.cap = {kDepth, kDepth, kSges, kSges, kInline};
    ProgramQp made;
    made.qpn = host.adapter->create_qp(init).value;
    made.sq = std::make_unique<ProgramRing>(file, kSendElement, kDepth + 1);
    std::shared_ptr<MappedReceiveQueue> receives;
    if (srq == 0) {
      made.rq = std::make_unique<ProgramRing>(file, kReceiveElement, kDepth + 1);
      receives = std::make_shared<MappedReceiveQueue>(made.rq->ring);
    }
    CHECK(host.adapter
              ->feed_qp(made.qpn,
                        std::make_shared<MappedSendQueue>(made.sq->ring, type == QpType::UD),
                        receives)
              .ok());
    return made;
  }

  static void post_receive(ProgramRing& ring, std::uint64_t wr_id, const std::vector<Sge>& sges) {
    CHECK(!ring.full());
    std::uint8_t* element = ring.element(ring.producer());
    put_field(element, 0, wr_id);
    put_field(element, 28, static_cast<std::uint32_t>(sges.size()));
    put_list(element + kReceiveElementHeader, sges);
    ring.produce();
  }

  // The next place in a send queue, with what all requests have.
  static std::uint8_t* begin_send(ProgramQp& qp, std::uint64_t wr_id, WrOpcode opcode,
                                  const std::vector<Sge>& sges,
                                  std::uint32_t flags = kSendSignaled) {
    CHECK(!qp.sq->full());
    std::uint8_t* element = qp.sq->element(qp.sq->producer());
    std::memset(element, 0, kSendElementHeader);
    put_field(element, 0, wr_id);
    put_field(element, 12, static_cast<std::uint32_t>(opcode));
    put_field(element, 16, flags);
    std::uint32_t length = 0;
    for (const Sge& sge : sges) {
      length += sge.length;
    }
    put_field(element, 184, length);
    put_field(element, 196, static_cast<std::uint32_t>(sges.size()));
    put_list(element + kSendElementHeader, sges);
    return element;
  }
  Status ring(ProgramQp& qp) { return host.adapter->ring_doorbell(qp.qpn, pair_.now_ns); }
  Status end_send(ProgramQp& qp) {
    qp.sq->produce();
    return ring(qp);
  }

  std::vector<ProgramCompletion> poll() {
    std::vector<ProgramCompletion> polled;
    while (!cq_ring->empty()) {
      const std::uint8_t* at = cq_ring->element(cq_ring->consumer());
      polled.push_back({get_field<std::uint64_t>(at, 0),
                        static_cast<WcStatus>(get_field<std::uint32_t>(at, 8)),
                        static_cast<WcOpcode>(get_field<std::uint32_t>(at, 12)),
                        get_field<std::uint32_t>(at, 20), get_field<std::uint32_t>(at, 24),
                        get_field<std::uint32_t>(at, 28), get_field<std::uint32_t>(at, 32),
                        get_field<std::uint32_t>(at, 36)});
      cq_ring->consume();
    }
    return polled;
  }

  Host& host;

 private:
  static void put_list(std::uint8_t* to, const std::vector<Sge>& sges) {
    for (const Sge& sge : sges) {
      put_field(to, 0, sge.address);
      put_field(to, 8, sge.length);
      put_field(to, 12, sge.lkey);
      to += kSgeBytes;
    }
  }

  Pair& pair_;
  bool is_a_;

 public:
  std::shared_ptr<RingFile> file;
  std::unique_ptr<ProgramRing> cq_ring;
  std::uint32_t cq = 0;
};

// Two programs, each on a host, and queue pairs of theirs that are connected.
struct ProgramPair : Pair {
  Program left{*this, true};
  Program right{*this, false};
  ProgramQp a;
  ProgramQp b;

  explicit ProgramPair(QpType type = QpType::RC, std::uint32_t right_srq = 0)
      : Pair(seed()), a(left.qp(type)), b(right.qp(type, right_srq)) {
    join(type);
  }
  void join(QpType type) {
    CHECK(connect(true, a.qpn, type, b.qpn, 100, 200).ok());
    CHECK(connect(false, b.qpn, type, a.qpn, 200, 100).ok());
  }
};

}  // namespace softhca::testing
