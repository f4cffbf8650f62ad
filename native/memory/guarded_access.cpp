#include "memory/guarded_access.hpp"

#include <ucontext.h>

#include <csignal>
#include <cstring>
#include <mutex>

#if !defined(__x86_64__) || !defined(__linux__)
#error "guarded memory access is written for Linux on x86-64"
#endif

// Each routine has one instruction that may fault, marked by a label, and one to resume at. The
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
    movl $1, %eax
    ret
softhca_store_resume:
    xorl %eax, %eax
    ret
    .cfi_endproc
    .size softhca_store, . - softhca_store

    .hidden softhca_load_fault
    .globl softhca_load_fault
    .hidden softhca_load_resume
    .globl softhca_load_resume
    .hidden softhca_store_fault
    .globl softhca_store_fault
    .hidden softhca_store_resume
    .globl softhca_store_resume
    .hidden softhca_copy_fault
    .globl softhca_copy_fault
    .hidden softhca_copy_resume
    .globl softhca_copy_resume
    .hidden softhca_xadd_fault
    .globl softhca_xadd_fault
    .hidden softhca_xadd_resume
    .globl softhca_xadd_resume
    .hidden softhca_cmpxchg_fault
    .globl softhca_cmpxchg_fault
    .hidden softhca_cmpxchg_resume
    .globl softhca_cmpxchg_resume
)");

extern "C" {
std::size_t softhca_copy(void* to, const void* from, std::size_t size);
int softhca_load(const std::uint32_t* at, std::uint32_t* value);
int softhca_store(std::uint32_t* at, std::uint32_t value);
int softhca_xadd(void* at, std::uint64_t addend, std::uint64_t* original);
int softhca_cmpxchg(void* at, std::uint64_t compare, std::uint64_t swap, std::uint64_t* original);
extern const char softhca_load_fault[], softhca_load_resume[];
extern const char softhca_store_fault[], softhca_store_resume[];
extern const char softhca_copy_fault[], softhca_copy_resume[];
extern const char softhca_xadd_fault[], softhca_xadd_resume[];
extern const char softhca_cmpxchg_fault[], softhca_cmpxchg_resume[];
}

namespace softhca {
namespace {

struct sigaction previous_segv;
struct sigaction previous_bus;
std::mutex install_mutex;

void pass_on(int number, siginfo_t* info, void* context) {
  const struct sigaction& before = number == SIGSEGV ? previous_segv : previous_bus;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
    // The faulting instruction runs again when this handler returns, and then meets the default
    // action.
    struct sigaction fallback = {};
    fallback.sa_handler = SIG_DFL;
    sigaction(number, &fallback, nullptr);
  } else {
    before.sa_handler(number);
  }
}

void on_fault(int number, siginfo_t* info, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto at = reinterpret_cast<const char*>(registers[REG_RIP]);
  const char* resume = nullptr;
  if (at == softhca_copy_fault) {
    resume = softhca_copy_resume;
  } else if (at == softhca_load_fault) {
    resume = softhca_load_resume;
  } else if (at == softhca_store_fault) {
    resume = softhca_store_resume;
  } else if (at == softhca_xadd_fault) {
    resume = softhca_xadd_resume;
  } else if (at == softhca_cmpxchg_fault) {
    resume = softhca_cmpxchg_resume;
  }
  if (resume == nullptr) {
    pass_on(number, info, context);
    return;
  }
  registers[REG_RIP] = reinterpret_cast<greg_t>(resume);
}

void install_one(int number, struct sigaction& previous) {
  struct sigaction now = {};
  if (sigaction(number, nullptr, &now) != 0) {
    return;
  }
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault) {
    return;
  }
  previous = now;
  struct sigaction ours = {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(number, &ours, nullptr);
}

}  // namespace

void install_fault_guard() {
  const std::lock_guard lock(install_mutex);
  install_one(SIGSEGV, previous_segv);
  install_one(SIGBUS, previous_bus);
}

std::size_t guarded_copy(void* to, const void* from, std::size_t size) {
  return softhca_copy(to, from, size);
}

// The processor keeps the order of loads and that of stores; the calls keep the compiler from
// changing it.
bool guarded_load(const std::uint32_t* at, std::uint32_t* value) {
  return softhca_load(at, value) != 0;
}

bool guarded_store(std::uint32_t* at, std::uint32_t value) { return softhca_store(at, value) != 0; }

bool guarded_fetch_add(void* at, std::uint64_t addend, std::uint64_t* original) {
  return softhca_xadd(at, addend, original) != 0;
}

bool guarded_compare_swap(void* at, std::uint64_t compare, std::uint64_t swap,
                          std::uint64_t* original) {
  return softhca_cmpxchg(at, compare, swap, original) != 0;
}

}  // namespace softhca
