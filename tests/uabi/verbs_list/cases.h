// The cases, each on devices that were opened for it.
#pragma once

#include <infiniband/verbs.h>

// One queue pair (modify_cases.c).
void modifying(void);

// Objects (object_cases.c, queue_cases.c, end_cases.c).
void creating_queue_pairs(void);
void creating_address_handles(void);
void registering(void);
void creating_completion_queues(void);
void sharing_receives(void);
void joining_groups(void);
void destroying(void);

// Two queue pairs (traffic_cases.c, window_cases.c).
void trafficking(enum ibv_qp_type type);
void binding_windows(void);

// Four, and what a program may do to them one after the other (walk.c).
void walking(void);
