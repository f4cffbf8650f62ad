#include "memory/guarded_access.hpp"

#include <ucontext.h>

#include <csignal>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "memory/guarded_routines.hpp"
#include "vocabulary/emulator.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "guarded memory access is written for Linux on x86-64 and arm64"
#endif

#if defined(__x86_64__)
extern "C" {
[[gnu::visibility("hidden"), gnu::used]] std::size_t softhca_string_bytes = 256;
}
#endif

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

// Where execution goes on is the one thing of the context that the architectures name differently.
auto& place_of(void* context) {
  auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return machine.gregs[REG_RIP];
#else
  return machine.pc;
#endif
}

void on_fault(int number, siginfo_t* info, void* context) {
  auto& place = place_of(context);
  const auto at = reinterpret_cast<const char*>(place);
  for (std::size_t i = 0; i < softhca_guard_count; ++i) {
    const SofthcaGuard& guard = softhca_guards[i];
    if (at >= guard.begin && at < guard.end) {
      place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(guard.resume);
      return;
    }
  }
  pass_on(number, info, context);
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

// The sanitizer of addresses does not see what assembly touches: it is shown the first byte that
// nobody may touch. Memory that is not there at all is no error here.
void show([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  const void* const wrong = __asan_region_is_poisoned(const_cast<void*>(at), size);
  if (wrong != nullptr) static_cast<void>(*static_cast<const volatile char*>(wrong));
#endif
}

}  // namespace

void install_fault_guard() {
  const std::lock_guard lock(install_mutex);
  install_one(SIGSEGV, previous_segv);
  install_one(SIGBUS, previous_bus);
#if defined(__x86_64__)
  if (runs_in_emulator()) softhca_string_bytes = SIZE_MAX;
#endif
}

void hold_fault_guard() { install_mutex.lock(); }
void let_go_of_fault_guard() { install_mutex.unlock(); }

std::size_t guarded_copy(void* to, const void* from, std::size_t size) {
  show(from, size);
  show(to, size);
  return softhca_copy(to, from, size);
}

// The routines keep the processor from changing the order of loads and that of stores, the calls
// the compiler.
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
