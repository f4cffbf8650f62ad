// What a system says to verbs that are nearly right: `verbs_list SEED FIRST COUNT [two]`.
//
// A line for each verb: the number of its case, what was asked, and what was said; then what
// completed, what events came, in which states queue pairs are and what is in their memory. What
// differs from run to run (addresses, keys, numbers, times) is not printed, so that two systems can
// be compared (../verbs_compare.py). With `two`, the peer of a pair is on the second device.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "choices.h"
#include "device.h"
#include "line.h"

// What a case of this kind that hangs is ended by.
enum { LONGEST_SECONDS = 120, KINDS = 16 };

static void run_case(void) {
  switch (case_number % KINDS) {
    case 0:
    case 1:
      modifying();
      break;
    case 2:
      once_in(2) ? creating_queue_pairs() : creating_address_handles();
      break;
    case 3:
      once_in(2) ? registering() : creating_completion_queues();
      break;
    case 4:
      once_in(2) ? joining_groups() : destroying();
      break;
    case 5:
      sharing_receives();
      break;
    case 6:
    case 7:
      binding_windows();
      break;
    case 8:
    case 9:
    case 10:
    case 11:
      trafficking(IBV_QPT_RC);
      break;
    case 12:
      trafficking(IBV_QPT_UC);
      break;
    case 13:
      trafficking(IBV_QPT_UD);
      break;
    default:
      walking();
  }
}

int main(int count, char** words) {
  const int two = count == 5 && strcmp(words[4], "two") == 0;
  if (count != 4 + two) {
    fputs("usage: verbs_list SEED FIRST COUNT [two]\n", stderr);
    return 2;
  }
  const uint64_t seed = strtoull(words[1], NULL, 10);
  const int first = atoi(words[2]), end = first + atoi(words[3]);
  for (case_number = first; case_number < end; ++case_number) {
    // A process for each: what it leaves open is closed, and what harms it harms no other.
    const pid_t child = fork();
    if (child == 0) {
      alarm(LONGEST_SECONDS);
      choose_by(seed * 1000003 + (uint64_t)case_number);
      open_devices(two);
      run_case();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) printf("%d\tended\t%x\n", case_number, (unsigned)status);
    fflush(stdout);
  }
  return 0;
}
