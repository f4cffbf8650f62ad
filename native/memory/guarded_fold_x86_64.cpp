#if defined(__x86_64__) && defined(__linux__)

#include "memory/guarded_labels.hpp"

// Arguments: rdi to, rsi from, rdx steps of 256 bytes, rcx lanes, r8 factors. Registers from 16 on
// alone: who leaves those below as they are need not clear what they have beyond the old ones.
asm(R"(
    .macro softhca_copy_step
    vmovdqu64 (%rsi), %zmm21
    vmovdqu64 64(%rsi), %zmm22
    vmovdqu64 128(%rsi), %zmm23
    vmovdqu64 192(%rsi), %zmm24
    vmovdqu64 %zmm21, (%rdi)
    vmovdqu64 %zmm22, 64(%rdi)
    vmovdqu64 %zmm23, 128(%rdi)
    vmovdqu64 %zmm24, 192(%rdi)
    .endm
    .text
    .p2align 4
    .hidden softhca_fold
    .globl softhca_fold
    .type softhca_fold, @function
softhca_fold:
    .cfi_startproc
    movq %rdx, %rax
    testq %rax, %rax
    jz 2f
    vbroadcasti32x4 (%r8), %zmm20
softhca_fold_fault:
    softhca_copy_step
    vpxorq (%rcx), %zmm21, %zmm16
    vpxorq 64(%rcx), %zmm22, %zmm17
    vpxorq 128(%rcx), %zmm23, %zmm18
    vpxorq 192(%rcx), %zmm24, %zmm19
    jmp 1f
    .p2align 4
0:
    softhca_copy_step
    vpclmulqdq $0x00, %zmm20, %zmm16, %zmm25
    vpclmulqdq $0x11, %zmm20, %zmm16, %zmm16
    vpclmulqdq $0x00, %zmm20, %zmm17, %zmm26
    vpclmulqdq $0x11, %zmm20, %zmm17, %zmm17
    vpclmulqdq $0x00, %zmm20, %zmm18, %zmm27
    vpclmulqdq $0x11, %zmm20, %zmm18, %zmm18
    vpclmulqdq $0x00, %zmm20, %zmm19, %zmm28
    vpclmulqdq $0x11, %zmm20, %zmm19, %zmm19
    vpternlogq $0x96, %zmm21, %zmm25, %zmm16
    vpternlogq $0x96, %zmm22, %zmm26, %zmm17
    vpternlogq $0x96, %zmm23, %zmm27, %zmm18
    vpternlogq $0x96, %zmm24, %zmm28, %zmm19
1:
    addq $256, %rsi
    addq $256, %rdi
    decq %rax
    jnz 0b
softhca_fold_behind:
    vmovdqa64 %zmm16, (%rcx)
    vmovdqa64 %zmm17, 64(%rcx)
    vmovdqa64 %zmm18, 128(%rcx)
    vmovdqa64 %zmm19, 192(%rcx)
2:
softhca_fold_resume:
    ret
    .cfi_endproc
    .size softhca_fold, . - softhca_fold
    .purgem softhca_copy_step
)" SOFTHCA_SHOW_LABELS(fold));

#endif
