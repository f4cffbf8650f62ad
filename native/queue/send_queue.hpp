// The send queue of a queue pair: a bounded ring of work queue entries, addressed by ever-growing
// indices.
//
//   freed <= oldest <= tail:  [freed, oldest) is done but keeps its slots until a later entry makes
//   a completion (what libibverbs documents for unsignaled work requests); [oldest, tail) is still
//   to be completed. Where a source feeds the queue, slots are free as soon as they are done: who
//   posts counts them in the source.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "queue/ring_slots.hpp"
#include "queue/work_request.hpp"
#include "queue/work_source.hpp"
#include "vocabulary/bytes.hpp"
#include "vocabulary/route.hpp"

namespace softhca {

// One work request on its way. Posting writes what the request has, and leaves the rest as it is:
// what few requests have comes last, in lines of memory that the others do not touch.
struct alignas(64) SendWqe {
  std::uint64_t wr_id = 0;
  std::uint64_t cqe = 0;  // See Completion.
  std::uint64_t remote_address = 0;
  std::uint64_t length = 0;  // Bytes of the message.
  std::uint32_t rkey = 0;
  std::uint32_t immediate = 0;
  std::uint32_t invalidate_rkey = 0;
  WrOpcode opcode = WrOpcode::SEND;
  std::uint8_t send_flags = 0;
  Reason refused = Reason::NONE;    // See SendWr.
  bool bad_address_handle = false;  // UD: the handle named nothing usable at posting.
  std::uint16_t sge_count = 0;
  // Of the requester.
  bool started = false;       // It has its PSNs.
  bool asked_inside = false;  // READ: a request began elsewhere than where pieces begin.
  std::uint32_t first_psn = 0;
  std::uint32_t psn_count = 0;  // PSNs that it takes: packets sent, or for READ, received.
  std::uint32_t xrc_srqn = 0;
  // READ: packets that one request asks for. Pieces end at fixed places, so that a repeated request
  // lies inside one that the peer has seen.
  std::uint32_t read_chunk = 0;
  // UD: where to; the route is copied, so that the handle may go.
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_qkey = 0;
  Route route;
  // Atomics, FLUSH, and work on keys.
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  std::uint64_t compare_mask = 0;
  std::uint64_t swap_mask = 0;
  FlushWork flush;
  MemoryWork memory;  // BIND_MW, REG_MR.

  // What a request says, but for its bytes and what few have.
  void describe(const SendWr& wr, std::uint64_t number, std::uint64_t bytes) {
    wr_id = wr.wr_id;
    cqe = number;
    remote_address = wr.remote_address;
    length = bytes;
    rkey = wr.rkey;
    immediate = wr.immediate;
    invalidate_rkey = wr.invalidate_rkey;
    opcode = wr.opcode;
    send_flags = static_cast<std::uint8_t>(wr.send_flags);
    refused = wr.refused;
    bad_address_handle = false;
    sge_count = 0;
    started = false;
    xrc_srqn = wr.xrc_srqn;
  }

  bool signaled() const { return (send_flags & kSendSignaled) != 0; }
  bool fence() const { return (send_flags & kSendFence) != 0; }
  bool solicited() const { return (send_flags & kSendSolicited) != 0; }
  bool is_inline() const { return (send_flags & kSendInline) != 0; }
  bool is_atomic() const {
    return swaps() || opcode == WrOpcode::ATOMIC_FETCH_AND_ADD ||
           opcode == WrOpcode::MASKED_ATOMIC_FETCH_AND_ADD;
  }
  bool swaps() const {
    return opcode == WrOpcode::ATOMIC_CMP_AND_SWP || opcode == WrOpcode::MASKED_ATOMIC_CMP_AND_SWP;
  }
  bool is_masked() const {
    return opcode == WrOpcode::MASKED_ATOMIC_CMP_AND_SWP ||
           opcode == WrOpcode::MASKED_ATOMIC_FETCH_AND_ADD;
  }
  // Answered by a READ response without bytes (Annex A19).
  bool is_confirmed() const {
    return opcode == WrOpcode::FLUSH || opcode == WrOpcode::ATOMIC_WRITE;
  }
  // Works on keys of this adapter, and sends nothing.
  bool is_local() const {
    return opcode == WrOpcode::LOCAL_INV || opcode == WrOpcode::BIND_MW ||
           opcode == WrOpcode::REG_MR;
  }
  bool is_read() const { return opcode == WrOpcode::RDMA_READ; }
  // Takes a response of its own, and one of the peer's READ and atomic resources.
  bool is_answered() const { return is_read() || is_atomic() || is_confirmed(); }
  bool is_write() const {
    return opcode == WrOpcode::RDMA_WRITE || opcode == WrOpcode::RDMA_WRITE_WITH_IMM;
  }
};

class SendQueue {
 public:
  // `max_inline` bytes of inline data per entry.
  void allocate(std::uint32_t capacity, std::uint32_t max_sge, std::uint32_t max_inline);
  void feed_from(std::shared_ptr<SendSource> source) { source_ = std::move(source); }
  SendSource* source() const { return source_.get(); }
  // Forgets everything in it.
  void reset() {
    freed_ = oldest_ = tail_ = 0;
    if (source_) {
      source_->reset();
    }
  }

  bool full() const { return tail_ - freed_ >= capacity_; }
  bool empty() const { return oldest_ == tail_; }
  // Slots that are not free: what is posted, and unsignaled requests until a completion tells of
  // their end.
  std::uint32_t held() const { return static_cast<std::uint32_t>(tail_ - freed_); }
  std::uint32_t capacity() const { return capacity_; }
  std::uint64_t oldest() const { return oldest_; }
  std::uint64_t tail() const { return tail_; }

  SendWqe& at(std::uint64_t index) { return entries_[slots_.of(index)]; }
  const SendWqe& at(std::uint64_t index) const { return entries_[slots_.of(index)]; }
  std::span<Sge> sges(std::uint64_t index) {
    return {&sges_[slots_.of(index) * max_sge_], at(index).sge_count};
  }
  // Room for the scatter/gather list of the entry to be pushed next.
  std::span<Sge> sge_room() { return {&sges_[slots_.of(tail_) * max_sge_], max_sge_}; }
  ByteSpan inline_bytes(std::uint64_t index) {
    return {inline_.data() + slots_.of(index) * max_inline_, max_inline_};
  }

  SendWqe& next_entry() { return at(tail_); }
  void push() { ++tail_; }
  // The same of one with one entry in its list, that has left with these PSNs.
  void push_started(const Sge& sge, std::uint32_t first_psn, std::uint32_t psn_count) {
    SendWqe& wqe = next_entry();
    wqe.sge_count = wqe.is_inline() ? 0 : 1;
    wqe.started = true;
    wqe.first_psn = first_psn;
    wqe.psn_count = psn_count;
    sge_room()[0] = sge;
    push();
  }
  // The oldest entry is done. With `made_completion`, it and all before it give their slots back.
  void complete_oldest(bool made_completion) {
    ++oldest_;
    if (made_completion) {
      freed_ = oldest_;
    }
    if (source_) {
      freed_ = oldest_;
      source_->finished();
    }
  }

 private:
  std::vector<SendWqe> entries_;
  std::vector<Sge> sges_;
  std::vector<std::uint8_t> inline_;
  std::shared_ptr<SendSource> source_;
  RingSlots slots_;
  std::uint32_t capacity_ = 0;
  std::uint32_t max_sge_ = 0;
  std::uint32_t max_inline_ = 0;
  std::uint64_t freed_ = 0;
  std::uint64_t oldest_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace softhca
