// The labels of the routines that may fault: the same in the assembly of every architecture, but
// for what one of them has besides.
#pragma once

#define SOFTHCA_FOR_EACH_GUARD(DO) DO(copy) DO(xadd) DO(cmpxchg) DO(load) DO(store)
#if defined(__x86_64__)
#define SOFTHCA_FOR_EACH_OTHER_GUARD(DO) DO(fold)
#else
#define SOFTHCA_FOR_EACH_OTHER_GUARD(DO)
#endif

// Ends the assembly: shows a routine's labels to the table in guarded_table.cpp, and to nobody
// outside of the library.
#define SOFTHCA_SHOW_LABELS(name) \
  SOFTHCA_SHOW_LABEL(name, fault) SOFTHCA_SHOW_LABEL(name, behind) SOFTHCA_SHOW_LABEL(name, resume)
#define SOFTHCA_SHOW_LABEL(name, place) \
  ".hidden softhca_" #name "_" #place "\n.globl softhca_" #name "_" #place "\n"
