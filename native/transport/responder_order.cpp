// READs and the atomics behind them (IBTA Vol 1, table 79). A READ reads when its responses leave,
// so an atomic waits for that. Where something behind the atomic cannot wait, it runs before, and
// the READ does not show it.

#include <algorithm>

#include "transport/queue_pair.hpp"
#include "transport/responder.hpp"

namespace softhca {

// A READ still has bytes to fetch, or an atomic that waited for one has not run yet.
bool Responder::atomics_wait() const {
  return std::ranges::any_of(replies_, [this](const Reply& reply) {
    return (reply.kind == ReplyKind::READ && !reply.repeats) ||
           (reply.kind == ReplyKind::ATOMIC && !resources_[reply.resource].executed);
  });
}

bool Responder::run_waiting_atomics() {
  for (auto reply = replies_.begin(); reply != replies_.end(); ++reply) {
    if (reply->kind != ReplyKind::ATOMIC) {
      continue;
    }
    Resource& resource = resources_[reply->resource];
    if (resource.executed) {
      continue;
    }
    const AccessFault fault = run_atomic(resource);
    if (!fault.ok()) {
      refuse_late(reply, resource.first_psn, fault);
      return false;
    }
    if (!opcode_info(resource.opcode).has(kFlush)) {
      resource.place = qp_.services.memory.place_of_word(resource.rkey, resource.address);
    }
  }
  return true;
}

// Atomics behind this answer that ran before it left, since something behind them could not wait.
bool Responder::is_overtaken(const Reply& reply) const {
  return !reply.repeats && std::ranges::any_of(replies_, [&](const Reply& behind) {
    return behind.kind == ReplyKind::ATOMIC && !behind.repeats &&
           resources_[behind.resource].executed;
  });
}

// Puts back into an answer what such atomics found, the last one first.
void Responder::hide_atomics(const Reply& reply, std::uint64_t address, ByteSpan payload) const {
  for (auto behind = replies_.rbegin(); behind != replies_.rend(); ++behind) {
    if (behind->kind != ReplyKind::ATOMIC || behind->repeats) {
      continue;
    }
    const Resource& atomic = resources_[behind->resource];
    if (atomic.executed && !opcode_info(atomic.opcode).has(kFlush)) {
      qp_.services.memory.put_back(resources_[reply.resource].rkey, address, payload, atomic.place,
                                   atomic.original);
    }
  }
}

}  // namespace softhca
