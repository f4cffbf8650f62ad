// Writes into the trace what one host's adapter does.
#pragma once

#include <cstdint>

#include "fabric/trace.hpp"
#include "vocabulary/observer.hpp"

namespace softhca {

struct VirtualClock {
  std::uint64_t now_ns = 0;
};

// Of a state: the queue pair was destroyed.
inline constexpr std::uint32_t kDestroyed = 255;
// Of a posted work request: a receive; else its opcode.
inline constexpr std::uint32_t kReceiveRequest = 256;
inline constexpr std::uint32_t kSignaledRequest = 512;
inline constexpr std::uint32_t kSharedRequest = 1024;  // To a shared receive queue: no queue pair.

class Recorder final : public Observer {
 public:
  // `packet` is the one that is being delivered; 0 if the adapter does something by itself.
  Recorder(Trace& trace, const VirtualClock& clock, std::uint32_t host, const std::uint64_t& packet)
      : trace_(trace), clock_(clock), packet_(packet), host_(host) {}

  void posted_send(std::uint32_t qpn, std::uint64_t wr_id, WrOpcode opcode, std::uint64_t length,
                   bool signaled) override {
    add(RecordKind::POST, qpn, wr_id,
        static_cast<std::uint32_t>(opcode) | (signaled ? kSignaledRequest : 0), length);
  }
  void posted_receive(std::uint32_t qpn, std::uint64_t wr_id, std::uint64_t length) override {
    add(RecordKind::POST, qpn, wr_id, kReceiveRequest, length);
  }
  void posted_shared_receive(std::uint32_t srq, std::uint64_t wr_id,
                             std::uint64_t length) override {
    add(RecordKind::POST, srq, wr_id, kReceiveRequest | kSharedRequest, length);
  }
  void completed(std::uint32_t qpn, std::uint64_t wr_id, WcStatus status, std::uint32_t byte_len,
                 bool is_receive) override {
    add(RecordKind::COMPLETION, qpn, wr_id,
        static_cast<std::uint32_t>(status) | (is_receive ? kReceiveRequest : 0), byte_len);
  }
  void created(std::uint32_t qpn, QpType type, std::uint32_t pd, std::uint32_t receive_pd,
               std::uint32_t sends, std::uint32_t receives) override {
    std::uint8_t more[8];
    store_be32(more, receives);
    store_be32(more + 4, receive_pd);
    trace_.add({.at_ns = clock_.now_ns,
                .a = pd,
                .b = static_cast<std::uint32_t>(type),
                .number = sends,
                .kind = RecordKind::CREATED,
                .host = host_,
                .qpn = qpn},
               more);
  }
  void changed_state(std::uint32_t qpn, QpState from, QpState to, std::uint32_t rights,
                     std::uint32_t reads) override {
    add(RecordKind::STATE, qpn, static_cast<std::uint64_t>(from) | std::uint64_t{rights} << 8,
        static_cast<std::uint32_t>(to), reads);
  }
  void destroyed(std::uint32_t qpn) override { add(RecordKind::STATE, qpn, 0, kDestroyed, 0); }
  void raised(EventType type, std::uint32_t object) override {
    add(RecordKind::EVENT, object, 0, static_cast<std::uint32_t>(type), 0);
  }
  void named(const NamedMemory& memory) override {
    std::uint8_t more[25];
    store_be64(more, memory.length);
    store_be32(more + 8, memory.pd);
    more[12] = memory.is_window;
    store_be32(more + 13, memory.region_key);
    store_be64(more + 17, memory.region_address);
    trace_.add({.at_ns = clock_.now_ns,
                .packet = packet_,
                .a = memory.address,
                .b = memory.access,
                .number = memory.key,
                .kind = RecordKind::KEY,
                .host = host_,
                .qpn = memory.qpn},
               more);
  }
  void unnamed(std::uint32_t key) override { add(RecordKind::KEY, 0, 0, 0, key); }
  void wrote(std::uint32_t key, std::uint64_t address, ByteView before, ByteView after) override {
    trace_.add({.at_ns = clock_.now_ns,
                .packet = packet_,
                .a = address,
                .number = key,
                .kind = RecordKind::WRITE,
                .host = host_},
               before, after);
  }

 private:
  void add(RecordKind kind, std::uint32_t qpn, std::uint64_t a, std::uint32_t b,
           std::uint64_t number) {
    trace_.add({.at_ns = clock_.now_ns,
                .packet = packet_,
                .a = a,
                .b = b,
                .number = static_cast<std::uint32_t>(number),
                .kind = kind,
                .host = host_,
                .qpn = qpn});
  }

  Trace& trace_;
  const VirtualClock& clock_;
  const std::uint64_t& packet_;
  const std::uint32_t host_;
};

}  // namespace softhca
