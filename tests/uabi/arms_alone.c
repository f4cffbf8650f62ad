// Arms a completion queue again and again: `arms_alone TOLD ASKED`, two descriptors. Tells of it
// once there is a queue, goes on when it is asked to, and tells again when it is done.
#include <unistd.h>

#include "connected.h"

enum { TIMES = 100 };

int main(int count, char** words) {
  must(count == 3, "usage: arms_alone TOLD ASKED");
  const int told = atoi(words[1]), asked = atoi(words[2]);
  struct ibv_context* context = open_first_device();
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  struct ibv_cq* cq = ibv_create_cq(context, 16, NULL, channel, 0);
  must(cq != NULL, "ibv_create_cq");
  char octet = 'q';
  must(write(told, &octet, 1) == 1 && read(asked, &octet, 1) == 1, "begin");
  for (int at = 0; at < TIMES; ++at) {
    must(ibv_req_notify_cq(cq, at % 2) == 0, "ibv_req_notify_cq");
  }
  octet = 'd';
  must(write(told, &octet, 1) == 1, "tell");
  return 0;
}
