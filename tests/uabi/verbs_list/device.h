// The devices of a case, memory, and attributes that every system takes.
#pragma once

#include <infiniband/verbs.h>

enum { ROOM = 65536, SLOT = 4096 };

struct device {
  struct ibv_context* context;
  struct ibv_pd *pd, *other_pd;
  union ibv_gid gid;
};

// The same device, unless two are asked for.
extern struct device near_device, far_device;
// Of the IPv4 address: which entry that is differs.
extern int gid_index;

void open_devices(int two);
// ROOM bytes that are the same in each case, with nothing mapped behind them.
uint8_t* map_room(void);
struct ibv_qp_attr right_attributes(uint32_t peer_qpn);
// The attributes that a transition must have.
int right_mask(enum ibv_qp_type type, enum ibv_qp_state to);
const char* type_name(enum ibv_qp_type type);
