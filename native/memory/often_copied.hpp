// Huge pages under memory that other processes copy from and to again and again.
//
// process_vm_readv(2) and its like look up every page on the far side, which for pages of 4 KiB
// takes longer than copying them. Memory that is copied for the eighth time is worth
// the fraction of a millisecond that it takes to put a huge page under it, as the kernel does by
// itself where transparent huge pages are set to "always". Whoever has the memory notices nothing,
// and can forbid it (MADV_NOHUGEPAGE, PR_SET_THP_DISABLE, the system's setting "never").
// (docs/decisions/0025-huge-pages-under-what-is-copied.md)
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "memory/foreign_memory.hpp"

namespace softhca {

// Counts what was copied of each huge page. Of many threads; places that share an entry may lose
// their counts to each other.
class OftenCopied {
 public:
  explicit OftenCopied(std::uint64_t huge_page_bytes) : huge_page_bytes_(huge_page_bytes) {}

  // This was copied. Returns where a huge page is worth a try now, and to nobody else meanwhile.
  // `memory`: no other has the number; 0 is our own.
  std::optional<std::uint64_t> note(std::uint64_t memory, std::uint64_t address,
                                    std::uint64_t bytes);
  // What came of it. It is tried again when much more was copied: the memory may be another then.
  void tried(std::uint64_t memory, std::uint64_t huge_page, bool is_huge);

  // As often as a huge page's bytes were copied, the copies have cost what it costs to make one.
  static constexpr std::uint64_t kCopies = 8;
  static constexpr std::uint64_t kCopiesUntilNext = 128;
  static constexpr std::uint64_t kLongerAfterFailure = 8;

 private:
  static constexpr int kEntryBits = 9;
  struct Entry {
    std::atomic<std::uint64_t> key{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> due_bytes{0};
  };

  std::uint64_t key_of(std::uint64_t memory, std::uint64_t address) const;
  Entry& entry_of(std::uint64_t key);

  const std::uint64_t huge_page_bytes_;
  std::array<Entry, 1 << kEntryBits> entries_;
};

// Bytes of the huge pages that may be made; 0: none may, or no sensible ones.
std::uint64_t huge_page_bytes();

// Notes that another process has copied this much of our memory, or shall soon.
void note_own_copy(std::uint64_t address, std::uint64_t bytes);
// Notes a copy of ours. It takes CAP_SYS_NICE to make a huge page for another process.
void note_foreign_copy(const ForeignMemory& memory, std::uint64_t address, std::uint64_t bytes);

}  // namespace softhca
