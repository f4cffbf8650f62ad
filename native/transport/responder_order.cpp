// READs and the atomics behind them (IBTA Vol 1, table 79). A READ reads when its responses leave,
// so an atomic waits for that. Where something behind the atomic cannot wait, it runs before, and
// the READ does not show it.

#include <algorithm>
#include <array>
#include <cstring>

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
    const AccessFault fault = resource.executed ? AccessFault{} : run_atomic(resource);
    if (!fault.ok()) {
      refuse_late(reply, resource.first_psn, fault);
      return false;
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
    const bool changes = atomic.executed && !opcode_info(atomic.opcode).has(kFlush);
    if (!changes || atomic.rkey != resources_[reply.resource].rkey) {
      continue;
    }
    std::array<std::uint8_t, sizeof atomic.original> word;
    std::memcpy(word.data(), &atomic.original, word.size());
    for (std::size_t byte = 0; byte < word.size(); ++byte) {
      // Below the payload it wraps, and is beyond its end as well.
      if (const std::uint64_t at = atomic.address + byte - address; at < payload.size()) {
        payload[at] = word[byte];
      }
    }
  }
}

}  // namespace softhca
