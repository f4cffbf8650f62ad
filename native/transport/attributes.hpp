// Attributes of queue pairs and address vectors (ibv_qp_attr, ibv_ah_attr).
#pragma once

#include <cstdint>

#include "vocabulary/enums.hpp"
#include "vocabulary/gid.hpp"

namespace softhca {

struct AhAttr {
  bool is_global = true;  // RoCE demands it.
  Gid dgid;
  std::uint8_t sgid_index = 0;
  std::uint32_t flow_label = 0;  // 20 bits.
  std::uint8_t hop_limit = 64;   // 0 and 1 mean "the route's", 64.
  std::uint8_t traffic_class = 0;
  std::uint8_t sl = 0;
  std::uint8_t port = 1;
};

struct QpCap {
  std::uint32_t max_send_wr = 0;
  std::uint32_t max_recv_wr = 0;
  std::uint32_t max_send_sge = 1;
  std::uint32_t max_recv_sge = 1;
  std::uint32_t max_inline_data = 0;  // Bytes.
};

struct QpInit {
  QpType type = QpType::RC;
  std::uint32_t pd = 0;       // Unused by XRC_RECV.
  std::uint32_t send_cq = 0;  // Handles; unused ones are 0.
  std::uint32_t recv_cq = 0;
  std::uint32_t srq = 0;   // 0: the QP has a receive queue of its own.
  std::uint32_t xrcd = 0;  // XRC_RECV.
  bool sq_sig_all = false;
  QpCap cap;
};

struct QpAttr {
  QpState qp_state = QpState::RESET;
  QpState cur_qp_state = QpState::RESET;
  std::uint8_t path_mtu = 3;  // Mtu code, 1 to 5.
  MigState path_mig_state = MigState::MIGRATED;
  std::uint32_t qkey = 0;
  std::uint32_t rq_psn = 0;  // 24 bits, as all PSNs and QPNs.
  std::uint32_t sq_psn = 0;
  std::uint32_t dest_qp_num = 0;
  std::uint32_t qp_access_flags = 0;
  QpCap cap;
  AhAttr ah_attr;
  AhAttr alt_ah_attr;
  std::uint16_t pkey_index = 0;
  std::uint16_t alt_pkey_index = 0;
  bool en_sqd_async_notify = false;
  bool sq_draining = false;
  std::uint8_t max_rd_atomic = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  // Code, 0 to 31.
  std::uint8_t port_num = 1;
  std::uint8_t timeout = 0;    // Code, 0 to 31; 0 waits for ever.
  std::uint8_t retry_cnt = 0;  // 0 to 7.
  std::uint8_t rnr_retry = 0;  // 0 to 7; 7 is without end.
  std::uint8_t alt_port_num = 0;
  std::uint8_t alt_timeout = 0;
};

// What a queue pair holds at a moment.
struct QpLoad {
  std::uint32_t sends = 0;      // Slots of the send queue that are not free.
  std::uint32_t receives = 0;   // Of its own receive queue, the one that is being filled included.
  std::uint32_t resources = 0;  // For READs and atomics of the peer.
  std::uint32_t answering = 0;  // Those whose answer is not out yet.
  std::uint32_t answers = 0;    // Answers that wait.
};

}  // namespace softhca
