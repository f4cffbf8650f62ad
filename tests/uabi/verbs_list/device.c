// Opens devices; says what would be right, which cases then spoil.
#include "device.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct device near_device, far_device;
int gid_index = -1;

static void must(int held, const char* what) {
  if (held) return;
  perror(what);
  exit(1);
}

static void open_device(struct device* device, struct ibv_device* from) {
  device->context = ibv_open_device(from);
  must(device->context != NULL, "ibv_open_device");
  // Events are looked for, and not waited for.
  fcntl(device->context->async_fd, F_SETFL, O_NONBLOCK);
  for (int index = 0; index < 16 && gid_index < 0; ++index) {
    static const uint8_t kMapped[12] = {[10] = 0xff, [11] = 0xff};
    const int status = ibv_query_gid(device->context, 1, index, &device->gid);
    if (status == 0 && memcmp(device->gid.raw, kMapped, 12) == 0) gid_index = index;
  }
  must(ibv_query_gid(device->context, 1, gid_index, &device->gid) == 0, "ibv_query_gid");
  device->pd = ibv_alloc_pd(device->context);
  device->other_pd = ibv_alloc_pd(device->context);
  must(device->pd != NULL && device->other_pd != NULL, "ibv_alloc_pd");
}

void open_devices(int two) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  must(list != NULL && list[0] != NULL && (!two || list[1] != NULL), "ibv_get_device_list");
  open_device(&near_device, list[0]);
  far_device = near_device;
  if (two) open_device(&far_device, list[1]);
}

uint8_t* map_room(void) {
  const size_t behind = 1 << 20;
  uint8_t* memory =
      mmap(NULL, ROOM + behind, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(memory != MAP_FAILED, "mmap");
  munmap(memory + ROOM, behind);
  for (int at = 0; at < ROOM; ++at) memory[at] = (uint8_t)(at * 31 + (at >> 8));
  return memory;
}

struct ibv_qp_attr right_attributes(uint32_t peer_qpn) {
  struct ibv_qp_attr attr = {.port_num = 1, .qkey = 0x11, .dest_qp_num = peer_qpn};
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attr.path_mtu = IBV_MTU_1024;
  attr.rq_psn = attr.sq_psn = 0x1234;
  attr.timeout = 14;
  attr.retry_cnt = 1;
  attr.rnr_retry = 1;
  attr.min_rnr_timer = 1;
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
  attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = near_device.gid;
  attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
  attr.ah_attr.grh.hop_limit = 64;
  attr.alt_ah_attr = attr.ah_attr;
  attr.alt_port_num = 1;
  attr.path_mig_state = IBV_MIG_MIGRATED;
  return attr;
}

int right_mask(enum ibv_qp_type type, enum ibv_qp_state to) {
  const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  const int requester =
      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  switch (to) {
    case IBV_QPS_INIT:
      return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
             (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    case IBV_QPS_RTR:
      return IBV_QP_STATE | (type == IBV_QPT_UD ? 0 : path) | (type == IBV_QPT_RC ? responder : 0);
    case IBV_QPS_RTS:
      return IBV_QP_STATE | IBV_QP_SQ_PSN | (type == IBV_QPT_RC ? requester : 0);
    default:
      return IBV_QP_STATE;
  }
}

const char* type_name(enum ibv_qp_type type) {
  return type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : "UD";
}
