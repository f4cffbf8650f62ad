#include "vocabulary/enums.hpp"

namespace softhca {

const char* reason_text(Reason reason) {
  switch (reason) {
    case Reason::NONE:
      return "";
    case Reason::UNKNOWN_KEY:
      return "no memory region has this key, or its tag is stale";
    case Reason::OTHER_PD:
      return "the memory region belongs to another protection domain";
    case Reason::OUT_OF_BOUNDS:
      return "the range leaves the memory region";
    case Reason::MISSING_RIGHT:
      return "the memory region lacks the access right";
    case Reason::QP_MISSING_RIGHT:
      return "the queue pair's access flags lack the right";
    case Reason::MISALIGNED:
      return "an atomic's address must be a multiple of 8";
    case Reason::TOO_LONG:
      return "the message is too long for where it goes";
    case Reason::BAD_LENGTH:
      return "the length does not fit the operation";
    case Reason::BAD_SEQUENCE:
      return "first, middle, last and only packets came out of order";
    case Reason::UNSUPPORTED:
      return "the operation does not exist in this service type";
    case Reason::TOO_MANY_READS:
      return "more READs and atomics than the read/atomic depth allows";
    case Reason::REFUSED_INVALIDATE:
      return "the key cannot be invalidated by the peer";
    case Reason::RETRIES_EXHAUSTED:
      return "nothing more arrived, or was answered, after retry_cnt retries";
    case Reason::RNR_EXHAUSTED:
      return "the peer had no receive posted, rnr_retry times";
    case Reason::NAK_INVALID_REQUEST:
      return "the peer answered NAK: invalid request";
    case Reason::NAK_ACCESS:
      return "the peer answered NAK: remote access error";
    case Reason::NAK_OPERATIONAL:
      return "the peer answered NAK: remote operational error";
    case Reason::BAD_RESPONSE:
      return "the peer's response fits no request";
    case Reason::FLUSHED:
      return "the queue pair was in error before this work request ran";
    case Reason::BAD_ADDRESS_HANDLE:
      return "the address handle is unknown or of another protection domain";
    case Reason::MEMORY_GONE:
      return "the registered memory is no longer there";
    case Reason::BAD_SRQ:
      return "the packet names no shared receive queue of this XRC domain, or not that of its "
             "message";
    case Reason::CQ_OVERRUN:
      return "a completion queue of the queue pair overflowed";
    case Reason::LOCAL_RECEIVE_BUFFER:
      return "the receive's scatter list failed its checks";
    case Reason::OTHER_QP:
      return "the memory window is bound to another queue pair";
    case Reason::WINDOW_KEY:
      return "a memory window's key gives no local access";
    case Reason::KEY_NOT_VALID:
      return "the key is not valid: unbound, invalidated, or not yet registered";
    case Reason::NO_BIND_RIGHT:
      return "the memory region lacks MW_BIND";
    case Reason::WINDOW_WRITES:
      return "a window with REMOTE_WRITE or REMOTE_ATOMIC needs a region with LOCAL_WRITE";
    case Reason::NOT_FREE:
      return "the key is still valid: invalidate it first";
    case Reason::EMPTY_BIND:
      return "a type 2 window cannot be bound to zero bytes: invalidate it instead";
    case Reason::KEY_INDEX:
      return "a new key may differ from the old one in its low 8 bits only";
    case Reason::ZERO_BASED_REGION:
      return "a window cannot be bound to a ZERO_BASED region";
    case Reason::ZERO_BASED_WINDOW:
      return "a type 1 window cannot be ZERO_BASED";
    case Reason::WRONG_WINDOW:
      return "no memory window of the type that the operation needs";
    case Reason::WINDOWS_BOUND:
      return "memory windows are bound to the region";
    case Reason::NOT_INVALIDATABLE:
      return "only type 2 windows and regions for fast registration can be invalidated";
    case Reason::NOT_MAPPED:
      return "the region has no memory yet: map_mr_sg() comes before RegMr";
    case Reason::BAD_ACCESS:
      return "the access flags are not allowed here, or contradict each other";
    case Reason::ATOMIC_LENGTH:
      return "the buffers of an atomic must have 8 bytes";
  }
  return "";
}

}  // namespace softhca
