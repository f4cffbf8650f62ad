// A line of the list: the case, what was asked, and what was said to it.
#pragma once

extern int case_number;

__attribute__((format(printf, 1, 2))) void ask(const char* form, ...);
__attribute__((format(printf, 1, 2))) void say(const char* form, ...);
// The name of an errno, or 0.
void say_errno(int status);
// Prints the line and begins the next one.
void tell(void);
