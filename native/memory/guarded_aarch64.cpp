#if defined(__aarch64__) && defined(__linux__)

#include "memory/guarded_labels.hpp"

// The procedure call standard puts the arguments in x0 to x3; x0 to x17 and v0 to v7 need not be
// kept. Exclusive loads and stores, not the atomics of ARMv8.1: every processor has them. A copy
// makes its last byte visible after all others, as the x86's does: programs watch it.
asm(R"(
    .text
    .p2align 4
    .hidden softhca_copy
    .globl softhca_copy
    .type softhca_copy, %function
softhca_copy:
    .cfi_startproc
    cbz x2, 5f
    sub x2, x2, #1
softhca_copy_fault:
    subs x3, x2, #64
    b.lo 2f
1:
    ldp q0, q1, [x1]
    ldp q2, q3, [x1, #32]
    stp q0, q1, [x0]
    stp q2, q3, [x0, #32]
    add x1, x1, #64
    add x0, x0, #64
    mov x2, x3
    subs x3, x2, #64
    b.hs 1b
2:
    subs x3, x2, #8
    b.lo 3f
    ldr x4, [x1]
    str x4, [x0]
    add x1, x1, #8
    add x0, x0, #8
    mov x2, x3
    b 2b
3:
    cbz x2, 4f
    ldrb w4, [x1]
    strb w4, [x0]
    add x1, x1, #1
    add x0, x0, #1
    sub x2, x2, #1
    b 3b
4:
    dmb ishst
    ldrb w4, [x1]
    strb w4, [x0]
softhca_copy_behind:
5:
    mov x0, #0
    ret
softhca_copy_resume:
    add x0, x2, #1
    ret
    .cfi_endproc
    .size softhca_copy, . - softhca_copy

    .p2align 4
    .hidden softhca_xadd
    .globl softhca_xadd
    .type softhca_xadd, %function
softhca_xadd:
    .cfi_startproc
softhca_xadd_fault:
1:
    ldaxr x3, [x0]
    add x4, x3, x1
    stlxr w5, x4, [x0]
    cbnz w5, 1b
softhca_xadd_behind:
    dmb ish
    str x3, [x2]
    mov w0, #1
    ret
softhca_xadd_resume:
    clrex
    mov w0, #0
    ret
    .cfi_endproc
    .size softhca_xadd, . - softhca_xadd

    .p2align 4
    .hidden softhca_cmpxchg
    .globl softhca_cmpxchg
    .type softhca_cmpxchg, %function
softhca_cmpxchg:
    .cfi_startproc
softhca_cmpxchg_fault:
1:
    ldaxr x4, [x0]
    cmp x4, x1
    csel x6, x2, x4, eq
    stlxr w5, x6, [x0]
    cbnz w5, 1b
softhca_cmpxchg_behind:
    dmb ish
    str x4, [x3]
    mov w0, #1
    ret
softhca_cmpxchg_resume:
    clrex
    mov w0, #0
    ret
    .cfi_endproc
    .size softhca_cmpxchg, . - softhca_cmpxchg

    .p2align 4
    .hidden softhca_load
    .globl softhca_load
    .type softhca_load, %function
softhca_load:
    .cfi_startproc
softhca_load_fault:
    ldar w2, [x0]
softhca_load_behind:
    str w2, [x1]
    mov w0, #1
    ret
softhca_load_resume:
    mov w0, #0
    ret
    .cfi_endproc
    .size softhca_load, . - softhca_load

    .p2align 4
    .hidden softhca_store
    .globl softhca_store
    .type softhca_store, %function
softhca_store:
    .cfi_startproc
softhca_store_fault:
    stlr w1, [x0]
softhca_store_behind:
    mov w0, #1
    ret
softhca_store_resume:
    mov w0, #0
    ret
    .cfi_endproc
    .size softhca_store, . - softhca_store
)" SOFTHCA_FOR_EACH_GUARD(SOFTHCA_SHOW_LABELS));

#endif
