// What an adapter and each queue pair count, under the names of Linux's hw_counters (mlx5 and rxe)
// where it has one.
#pragma once

#include <cstdint>

namespace softhca {

// X(name): one 64-bit counter.
#define SOFTHCA_COUNTERS(X)                                                             \
  X(sent_pkts)  /* Packets handed to a link. */                                         \
  X(rcvd_pkts)  /* Packets that reached a queue pair. */                                \
  X(sent_bytes) /* UDP payload bytes. */                                                \
  X(rcvd_bytes)                                                                         \
  X(retransmitted_pkts)    /* Requests sent again. */                                   \
  X(duplicate_request)     /* Responder: request with a PSN behind. */                  \
  X(out_of_sequence)       /* Responder: request with a PSN ahead. */                   \
  X(packet_seq_err)        /* Requester: NAKs for PSN sequence errors. */               \
  X(implied_nak_seq_err)   /* Requester: an ACK or response skipped one still due. */   \
  X(local_ack_timeout_err) /* Requester: ACK timer ran out. */                          \
  X(early_retransmits)     /* Requester: probes sent before the ACK timer ran out. */   \
  X(retry_exceeded_err)                                                                 \
  X(rcvd_rnr_err)      /* Requester: RNR NAKs received. */                              \
  X(send_rnr_err)      /* Responder: RNR NAKs sent. */                                  \
  X(rnr_nak_retry_err) /* Requester: rnr_retry ran out. */                              \
  X(out_of_buffer)     /* Messages that found no receive posted. */                     \
  X(rx_write_requests)                                                                  \
  X(rx_read_requests)                                                                   \
  X(rx_atomic_requests)                                                                 \
  X(rx_send_requests)                                                                   \
  X(rx_icrc_encapsulated)       /* Packets dropped for a wrong ICRC. */                 \
  X(rx_icrc_solved)             /* Packets whose IPv4 identification was solved for. */ \
  X(rx_malformed)               /* Packets that do not decode. */                       \
  X(rx_unknown_qp)              /* No such QP, wrong service type, or wrong peer. */    \
  X(rx_wrong_state)             /* The QP's state does not receive. */                  \
  X(rx_cnp)                     /* Congestion notifications. */                         \
  X(np_ecn_marked_roce_packets) /* Packets that came marked, where that is heeded. */   \
  X(np_cnp_sent)                                                                        \
  X(rp_cnp_handled)                                                                     \
  X(port_down_drops) /* Packets of either direction while the port is down. */          \
  X(bad_pkey_cntr)                                                                      \
  X(qkey_viol_cntr)                                                                     \
  X(req_cqe_error)                                                                      \
  X(req_cqe_flush_error)                                                                \
  X(resp_cqe_error)                                                                     \
  X(resp_cqe_flush_error)                                                               \
  X(req_remote_access_errors) /* Requester: NAKs for remote access. */                  \
  X(req_remote_invalid_request)                                                         \
  X(resp_remote_access_errors) /* Responder: requests refused for access. */            \
  X(resp_local_length_error)   /* Responder: message longer than its receive. */        \
  X(dropped_pkts)              /* UC and UD: packets discarded in silence. */

struct Counters {
#define SOFTHCA_COUNTER_FIELD(name) std::uint64_t name = 0;
  SOFTHCA_COUNTERS(SOFTHCA_COUNTER_FIELD)
#undef SOFTHCA_COUNTER_FIELD
};

}  // namespace softhca
