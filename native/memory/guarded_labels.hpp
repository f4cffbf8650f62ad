// The labels of the routines that may fault: the same in the assembly of every architecture.
#pragma once

#define SOFTHCA_FOR_EACH_GUARD(DO) DO(copy) DO(xadd) DO(cmpxchg) DO(load) DO(store)

// Ends the assembly: shows a routine's labels to the table in guarded_table.cpp, and to nobody
// outside of the library.
#define SOFTHCA_SHOW_LABELS(name) \
  SOFTHCA_SHOW_LABEL(name, fault) SOFTHCA_SHOW_LABEL(name, behind) SOFTHCA_SHOW_LABEL(name, resume)
#define SOFTHCA_SHOW_LABEL(name, place) \
  ".hidden softhca_" #name "_" #place "\n.globl softhca_" #name "_" #place "\n"
