// Lines are printed as a whole, so that of a case that ends early none is cut.
#define _GNU_SOURCE
#include "line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int case_number;

static char asked[8192], said[16384];

void ask(const char* form, ...) {
  va_list list;
  va_start(list, form);
  const size_t at = strlen(asked);
  vsnprintf(asked + at, sizeof asked - at, form, list);
  va_end(list);
}

void say(const char* form, ...) {
  va_list list;
  va_start(list, form);
  const size_t at = strlen(said);
  vsnprintf(said + at, sizeof said - at, form, list);
  va_end(list);
}

void say_errno(int status) {
  const char* name = strerrorname_np(status);
  if (status == 0 || name != NULL) {
    say("%s", status == 0 ? "0" : name);
  } else {
    say("errno %d", status);
  }
}

void tell(void) {
  printf("%d\t%s\t%s\n", case_number, asked, said);
  fflush(stdout);
  asked[0] = said[0] = 0;
}
