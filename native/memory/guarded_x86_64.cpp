#if defined(__x86_64__) && defined(__linux__)

#include <iterator>

#include "memory/guarded_routines.hpp"

// Each routine has one instruction that may fault, between two labels, and one to resume at. The
// System V calling convention puts the arguments in rdi, rsi, rdx, rcx.
asm(R"(
    .text
    .p2align 4
    .hidden softhca_copy
    .globl softhca_copy
    .type softhca_copy, @function
softhca_copy:
    .cfi_startproc
    movq %rdx, %rcx
softhca_copy_fault:
    rep movsb
softhca_copy_behind:
softhca_copy_resume:
    movq %rcx, %rax
    ret
    .cfi_endproc
    .size softhca_copy, . - softhca_copy

    .p2align 4
    .hidden softhca_xadd
    .globl softhca_xadd
    .type softhca_xadd, @function
softhca_xadd:
    .cfi_startproc
softhca_xadd_fault:
    lock xaddq %rsi, (%rdi)
softhca_xadd_behind:
    movq %rsi, (%rdx)
    movl $1, %eax
    ret
softhca_xadd_resume:
    xorl %eax, %eax
    ret
    .cfi_endproc
    .size softhca_xadd, . - softhca_xadd

    .p2align 4
    .hidden softhca_cmpxchg
    .globl softhca_cmpxchg
    .type softhca_cmpxchg, @function
softhca_cmpxchg:
    .cfi_startproc
    movq %rsi, %rax
softhca_cmpxchg_fault:
    lock cmpxchgq %rdx, (%rdi)
softhca_cmpxchg_behind:
    movq %rax, (%rcx)
    movl $1, %eax
    ret
softhca_cmpxchg_resume:
    xorl %eax, %eax
    ret
    .cfi_endproc
    .size softhca_cmpxchg, . - softhca_cmpxchg

    .p2align 4
    .hidden softhca_load
    .globl softhca_load
    .type softhca_load, @function
softhca_load:
    .cfi_startproc
softhca_load_fault:
    movl (%rdi), %ecx
softhca_load_behind:
    movl %ecx, (%rsi)
    movl $1, %eax
    ret
softhca_load_resume:
    xorl %eax, %eax
    ret
    .cfi_endproc
    .size softhca_load, . - softhca_load

    .p2align 4
    .hidden softhca_store
    .globl softhca_store
    .type softhca_store, @function
softhca_store:
    .cfi_startproc
softhca_store_fault:
    movl %esi, (%rdi)
softhca_store_behind:
    movl $1, %eax
    ret
softhca_store_resume:
    xorl %eax, %eax
    ret
    .cfi_endproc
    .size softhca_store, . - softhca_store

    .hidden softhca_copy_fault
    .globl softhca_copy_fault
    .hidden softhca_copy_behind
    .globl softhca_copy_behind
    .hidden softhca_copy_resume
    .globl softhca_copy_resume
    .hidden softhca_xadd_fault
    .globl softhca_xadd_fault
    .hidden softhca_xadd_behind
    .globl softhca_xadd_behind
    .hidden softhca_xadd_resume
    .globl softhca_xadd_resume
    .hidden softhca_cmpxchg_fault
    .globl softhca_cmpxchg_fault
    .hidden softhca_cmpxchg_behind
    .globl softhca_cmpxchg_behind
    .hidden softhca_cmpxchg_resume
    .globl softhca_cmpxchg_resume
    .hidden softhca_load_fault
    .globl softhca_load_fault
    .hidden softhca_load_behind
    .globl softhca_load_behind
    .hidden softhca_load_resume
    .globl softhca_load_resume
    .hidden softhca_store_fault
    .globl softhca_store_fault
    .hidden softhca_store_behind
    .globl softhca_store_behind
    .hidden softhca_store_resume
    .globl softhca_store_resume
)");

extern "C" {
extern const char softhca_copy_fault[], softhca_copy_behind[], softhca_copy_resume[];
extern const char softhca_xadd_fault[], softhca_xadd_behind[], softhca_xadd_resume[];
extern const char softhca_cmpxchg_fault[], softhca_cmpxchg_behind[], softhca_cmpxchg_resume[];
extern const char softhca_load_fault[], softhca_load_behind[], softhca_load_resume[];
extern const char softhca_store_fault[], softhca_store_behind[], softhca_store_resume[];

const SofthcaGuard softhca_guards[] = {
    {softhca_copy_fault, softhca_copy_behind, softhca_copy_resume},
    {softhca_xadd_fault, softhca_xadd_behind, softhca_xadd_resume},
    {softhca_cmpxchg_fault, softhca_cmpxchg_behind, softhca_cmpxchg_resume},
    {softhca_load_fault, softhca_load_behind, softhca_load_resume},
    {softhca_store_fault, softhca_store_behind, softhca_store_resume},
};
const std::size_t softhca_guard_count = std::size(softhca_guards);
}

#endif
