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
      return "the peer did not answer after retry_cnt retries";
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
      return "the packet names no shared receive queue of this XRC domain";
    case Reason::CQ_OVERRUN:
      return "a completion queue of the queue pair overflowed";
    case Reason::LOCAL_RECEIVE_BUFFER:
      return "the receive's scatter list failed its checks";
  }
  return "";
}

}  // namespace softhca
