#include "memory/often_copied.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

namespace softhca {
namespace {

// Newer than the headers of some systems.
constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1.
constexpr long kPidfdOpen = 434;
constexpr long kProcessMadvise = 440;
// Those of systems with pages of 64 KiB are not made in passing.
constexpr std::uint64_t kLargestBytes = 32u << 20;

const std::string kSettings = "/sys/kernel/mm/transparent_hugepage/";

std::uint64_t allowed_bytes() {
  static const std::uint64_t bytes = huge_page_bytes();
  return bytes;
}

OftenCopied& often_copied() {
  static OftenCopied counts(allowed_bytes());
  return counts;
}

// The kernel lets us make none for other processes.
std::atomic<bool> others_refused{false};

bool make_own(std::uint64_t address, std::uint64_t bytes) {
  return madvise(reinterpret_cast<void*>(address), bytes, kCollapse) == 0;
}

// The descriptor is of this memory's process, if the memory is still there once it is open.
bool make_foreign(const ForeignMemory& memory, std::uint64_t address, std::uint64_t bytes) {
  const int process = static_cast<int>(syscall(kPidfdOpen, memory.process, 0));
  if (process < 0) return false;
  bool is_huge = false;
  if (!foreign_is_gone(memory)) {
    const iovec page{reinterpret_cast<void*>(address), bytes};
    is_huge = syscall(kProcessMadvise, process, &page, 1, kCollapse, 0) >= 0;
    if (!is_huge && (errno == EPERM || errno == ENOSYS)) others_refused.store(true);
  }
  close(process);
  return is_huge;
}

}  // namespace

std::uint64_t huge_page_bytes() {
  std::string enabled;
  std::getline(std::ifstream(kSettings + "enabled"), enabled);
  std::uint64_t bytes = 0;
  std::ifstream(kSettings + "hpage_pmd_size") >> bytes;
  const bool may_be = !enabled.empty() && enabled.find("[never]") == std::string::npos;
  return may_be && bytes <= kLargestBytes ? bytes : 0;
}

// Never 0, which is an entry that has none.
std::uint64_t OftenCopied::key_of(std::uint64_t memory, std::uint64_t address) const {
  return (memory << 48) + address / huge_page_bytes_ + 1;
}

OftenCopied::Entry& OftenCopied::entry_of(std::uint64_t key) {
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;
  return entries_[(key * kSpread) >> (64 - kEntryBits)];
}

std::optional<std::uint64_t> OftenCopied::note(std::uint64_t memory, std::uint64_t address,
                                               std::uint64_t bytes) {
  std::optional<std::uint64_t> due;
  const std::uint64_t end = address + bytes;
  for (std::uint64_t at = address; at < end;) {
    const std::uint64_t page = at / huge_page_bytes_ * huge_page_bytes_;
    const std::uint64_t here = std::min(end - at, page + huge_page_bytes_ - at);
    const std::uint64_t key = key_of(memory, at);
    Entry& entry = entry_of(key);
    if (entry.key.exchange(key, std::memory_order_relaxed) != key) {
      entry.bytes.store(0, std::memory_order_relaxed);
      entry.due_bytes.store(kCopies * huge_page_bytes_, std::memory_order_relaxed);
    }
    const std::uint64_t copied = entry.bytes.fetch_add(here, std::memory_order_relaxed) + here;
    std::uint64_t due_bytes = entry.due_bytes.load(std::memory_order_relaxed);
    if (!due && copied >= due_bytes &&
        entry.due_bytes.compare_exchange_strong(due_bytes, UINT64_MAX, std::memory_order_relaxed)) {
      due = page;
    }
    at += here;
  }
  return due;
}

void OftenCopied::tried(std::uint64_t memory, std::uint64_t huge_page, bool is_huge) {
  const std::uint64_t key = key_of(memory, huge_page);
  Entry& entry = entry_of(key);
  if (entry.key.load(std::memory_order_relaxed) != key) return;
  const std::uint64_t copied = entry.bytes.load(std::memory_order_relaxed);
  const std::uint64_t next =
      is_huge ? copied + kCopiesUntilNext * huge_page_bytes_ : copied * kLongerAfterFailure;
  entry.due_bytes.store(next, std::memory_order_relaxed);
}

void note_own_copy(std::uint64_t address, std::uint64_t bytes) {
  if (allowed_bytes() == 0) return;
  const std::optional<std::uint64_t> due = often_copied().note(0, address, bytes);
  if (due) often_copied().tried(0, *due, make_own(*due, allowed_bytes()));
}

void note_foreign_copy(const ForeignMemory& memory, std::uint64_t address, std::uint64_t bytes) {
  if (allowed_bytes() == 0 || others_refused.load(std::memory_order_relaxed)) return;
  const std::optional<std::uint64_t> due = often_copied().note(memory.number, address, bytes);
  if (!due) return;
  often_copied().tried(memory.number, *due, make_foreign(memory, *due, allowed_bytes()));
}

}  // namespace softhca
