// The table of queue pair transitions: which attributes each service type requires and allows (IBTA
// Vol 1, table 96).

#include <array>
#include <span>

#include "transport/queue_pair.hpp"

namespace softhca {
namespace {

constexpr std::uint32_t kInitAttributes = kQpPkeyIndex | kQpPort | kQpAccessFlags;
constexpr std::uint32_t kInitDatagram = kQpPkeyIndex | kQpPort | kQpQkey;
constexpr std::uint32_t kConnect = kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
constexpr std::uint32_t kConnectReliable = kConnect | kQpMaxDestRdAtomic | kQpMinRnrTimer;
constexpr std::uint32_t kConnectOptional = kQpAltPath | kQpAccessFlags | kQpPkeyIndex;
constexpr std::uint32_t kStartReliable =
    kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic;
constexpr std::uint32_t kRunning = kQpCurState | kQpAltPath | kQpAccessFlags | kQpPathMigState;
constexpr std::uint32_t kDrained =
    kQpAv | kQpAltPath | kQpAccessFlags | kQpPkeyIndex | kQpPathMigState;
constexpr std::uint32_t kDrainedReliable = kDrained | kQpPort | kQpTimeout | kQpRetryCnt |
                                           kQpRnrRetry | kQpMaxQpRdAtomic | kQpMaxDestRdAtomic |
                                           kQpMinRnrTimer;

struct Allowed {
  QpState from;
  QpState to;
  std::uint32_t required;
  std::uint32_t optional;
};

using enum QpState;

constexpr auto kReliable = std::to_array<Allowed>({
    {RESET, INIT, kInitAttributes, 0},
    {INIT, INIT, 0, kInitAttributes},
    {INIT, RTR, kConnectReliable, kConnectOptional},
    {RTR, RTS, kStartReliable, kRunning | kQpMinRnrTimer},
    {RTS, RTS, 0, kRunning | kQpMinRnrTimer},
    {RTS, SQD, 0, kQpEnSqdAsyncNotify},
    {SQD, RTS, 0, kRunning | kQpMinRnrTimer},
    {SQD, SQD, 0, kDrainedReliable},
});

constexpr auto kUnreliable = std::to_array<Allowed>({
    {RESET, INIT, kInitAttributes, 0},
    {INIT, INIT, 0, kInitAttributes},
    {INIT, RTR, kConnect, kConnectOptional},
    {RTR, RTS, kQpSqPsn, kRunning},
    {RTS, RTS, 0, kRunning},
    {RTS, SQD, 0, kQpEnSqdAsyncNotify},
    {SQD, RTS, 0, kRunning},
    {SQD, SQD, 0, kDrained},
    {SQE, RTS, 0, kQpCurState | kQpAccessFlags},
});

constexpr auto kDatagram = std::to_array<Allowed>({
    {RESET, INIT, kInitDatagram, 0},
    {INIT, INIT, 0, kInitDatagram},
    {INIT, RTR, 0, kQpPkeyIndex | kQpQkey},
    {RTR, RTS, kQpSqPsn, kQpCurState | kQpQkey},
    {RTS, RTS, 0, kQpCurState | kQpQkey},
    {RTS, SQD, 0, kQpEnSqdAsyncNotify},
    {SQD, RTS, 0, kQpCurState | kQpQkey},
    {SQD, SQD, 0, kQpPkeyIndex | kQpQkey},
    {SQE, RTS, 0, kQpCurState | kQpQkey},
});

// An XRC initiator has no responder; its connection takes the attributes of UC, its start those of
// RC.
constexpr auto kXrcInitiator = std::to_array<Allowed>({
    {RESET, INIT, kInitAttributes, 0},
    {INIT, INIT, 0, kInitAttributes},
    {INIT, RTR, kConnect, kConnectOptional},
    {RTR, RTS, kStartReliable, kRunning},
    {RTS, RTS, 0, kRunning},
    {RTS, SQD, 0, kQpEnSqdAsyncNotify},
    {SQD, RTS, 0, kRunning},
    {SQD, SQD, 0, kDrained | kQpPort | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic},
});

constexpr auto kXrcTarget = std::to_array<Allowed>({
    {RESET, INIT, kInitAttributes, 0},
    {INIT, INIT, 0, kInitAttributes},
    {INIT, RTR, kConnectReliable, kConnectOptional},
    {RTR, RTS, kQpTimeout | kQpSqPsn, kRunning | kQpMinRnrTimer},
    {RTS, RTS, 0, kRunning | kQpMinRnrTimer},
    {RTS, SQD, 0, kQpEnSqdAsyncNotify},
    {SQD, RTS, 0, kRunning | kQpMinRnrTimer},
    {SQD, SQD, 0, kDrained | kQpPort | kQpTimeout | kQpMaxDestRdAtomic | kQpMinRnrTimer},
});

// By the present state: who is refused may not know it.
constexpr auto kNoTransition = std::to_array<const char*>({
    "there is no transition to this state from RESET",
    "there is no transition to this state from INIT",
    "there is no transition to this state from RTR",
    "there is no transition to this state from RTS",
    "there is no transition to this state from SQD",
    "there is no transition to this state from SQE",
    "there is no transition to this state from ERR",
});

std::span<const Allowed> table_of(QpType type) {
  switch (type) {
    case QpType::UC:
      return kUnreliable;
    case QpType::UD:
      return kDatagram;
    case QpType::XRC_SEND:
      return kXrcInitiator;
    case QpType::XRC_RECV:
      return kXrcTarget;
    default:
      return kReliable;
  }
}

}  // namespace

Status check_transition(QpType type, QpState from, QpState to, std::uint32_t mask) {
  const std::uint32_t given = mask & ~std::uint32_t{kQpState};
  if (to == RESET || (to == ERR && from != RESET)) {
    if (given != 0) {
      return refuse(EINVAL, "attr_mask", given, "RESET and ERR take no attributes");
    }
    return Status::success();
  }
  for (const Allowed& allowed : table_of(type)) {
    if (allowed.from != from || allowed.to != to) {
      continue;
    }
    if (const std::uint32_t missing = allowed.required & ~given; missing != 0) {
      return refuse(EINVAL, "attr_mask", missing, "lacks attributes that this transition requires");
    }
    if (const std::uint32_t beyond = given & ~(allowed.required | allowed.optional); beyond != 0) {
      return refuse(EINVAL, "attr_mask", beyond,
                    "has attributes that this transition does not allow");
    }
    return Status::success();
  }
  return refuse(EINVAL, "qp_state", static_cast<std::uint64_t>(to),
                kNoTransition[static_cast<std::size_t>(from)]);
}

}  // namespace softhca
