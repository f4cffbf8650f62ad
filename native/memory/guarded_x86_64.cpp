#if defined(__x86_64__) && defined(__linux__)

#include "memory/guarded_labels.hpp"

// What may fault in a routine lies between two labels, and it has one to resume at. The System V
// calling convention puts the arguments in rdi, rsi, rdx, rcx.
//
// Copying goes up from the first byte, and what is left is in rcx throughout, but for what rdx
// adds. "rep movsb" is best for many bytes (softhca_string_bytes says how many), but takes longer
// to begin than to copy a few, and may show its bytes in any order (Intel SDM Vol 3, "Fast-String
// Operation and Out-of-Order Stores"): the last bytes of a copy, which programs watch, are stored
// once, and by an instruction of their own.
asm(R"(
    .text
    .p2align 4
    .hidden softhca_copy
    .globl softhca_copy
    .type softhca_copy, @function
softhca_copy:
    .cfi_startproc
    movq %rdx, %rcx
    xorl %edx, %edx
softhca_copy_fault:
    cmpq softhca_string_bytes(%rip), %rcx
    ja 7f
    jmp 9f
8:
    movups (%rsi), %xmm0
    movups 16(%rsi), %xmm1
    movups 32(%rsi), %xmm2
    movups 48(%rsi), %xmm3
    movups %xmm0, (%rdi)
    movups %xmm1, 16(%rdi)
    movups %xmm2, 32(%rdi)
    movups %xmm3, 48(%rdi)
    addq $64, %rsi
    addq $64, %rdi
    subq $64, %rcx
9:
    cmpq $64, %rcx
    ja 8b
    cmpq $48, %rcx
    jbe 1f
    movups (%rsi), %xmm0
    movups 16(%rsi), %xmm1
    movups 32(%rsi), %xmm2
    movups %xmm0, (%rdi)
    movups %xmm1, 16(%rdi)
    movups %xmm2, 32(%rdi)
    addq $48, %rsi
    addq $48, %rdi
    subq $48, %rcx
    jmp 1f
0:
    movups (%rsi), %xmm0
    movups %xmm0, (%rdi)
    addq $16, %rsi
    addq $16, %rdi
    subq $16, %rcx
1:
    cmpq $16, %rcx
    ja 0b
    cmpq $8, %rcx
    jb 3f
    movq (%rsi), %rax
    je 2f
    movq -8(%rsi,%rcx), %r8
    movq %rax, (%rdi)
    movq %r8, -8(%rdi,%rcx)
    jmp softhca_copy_behind
2:
    movq %rax, (%rdi)
    jmp softhca_copy_behind
3:
    cmpq $4, %rcx
    jb 5f
    movl (%rsi), %eax
    je 4f
    movl -4(%rsi,%rcx), %r8d
    movl %eax, (%rdi)
    movl %r8d, -4(%rdi,%rcx)
    jmp softhca_copy_behind
4:
    movl %eax, (%rdi)
    jmp softhca_copy_behind
5:
    cmpq $2, %rcx
    jb 6f
    movzwl (%rsi), %eax
    movw %ax, (%rdi)
    je softhca_copy_behind
    movzbl 2(%rsi), %eax
    movb %al, 2(%rdi)
    jmp softhca_copy_behind
6:
    testq %rcx, %rcx
    jz softhca_copy_behind
    movzbl (%rsi), %eax
    movb %al, (%rdi)
    jmp softhca_copy_behind
7:
    movl $16, %edx
    subq %rdx, %rcx
    rep movsb
    movq (%rsi), %rax
    movq 8(%rsi), %r8
    movq %rax, (%rdi)
    movq %r8, 8(%rdi)
softhca_copy_behind:
    xorl %eax, %eax
    ret
softhca_copy_resume:
    leaq (%rcx,%rdx), %rax
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
)" SOFTHCA_FOR_EACH_GUARD(SOFTHCA_SHOW_LABELS));

#endif
