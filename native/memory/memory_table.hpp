// The memory regions of an adapter: their keys, and every access to what they cover.
//
// A key is a 24-bit index and an 8-bit tag; a lookup compares the whole key, so a stale tag fails
// (IBTA Vol 1, 10.6.3). Rights, bounds and protection domains are checked at each access, when a
// packet is built or executed, not at posting.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/address_space.hpp"
#include "vocabulary/enums.hpp"
#include "vocabulary/random.hpp"
#include "vocabulary/sge.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// Why an access was refused, and which one; `reason` is NONE when it was not.
struct AccessFault {
  Reason reason = Reason::NONE;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;

  bool ok() const { return reason == Reason::NONE; }
};

struct RegionRequest {
  std::uint32_t pd = 0;
  std::uint64_t address = 0;  // Where the bytes lie.
  std::uint64_t length = 0;
  std::uint64_t iova = 0;    // What keys address them by.
  std::uint32_t access = 0;  // AccessFlags.
};

class MemoryTable {
 public:
  MemoryTable(AddressSpace& space, Random& random, std::uint32_t max_regions,
              std::uint64_t max_region_bytes);

  // The key of the new region; it is its handle as well.
  Result<std::uint32_t> register_region(const RegionRequest& request);
  Status deregister_region(std::uint32_t key);
  // The region's protection domain and rights; null if there is no such key.
  const RegionRequest* find(std::uint32_t key) const;

  // Copies the bytes at `offset` of the scatter/gather list into `out`.
  AccessFault gather(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                     ByteSpan out);
  // Copies `in` to `offset` of the list; every region needs LOCAL_WRITE.
  AccessFault scatter(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                      ByteView in);
  // Checks the whole list without touching a byte.
  AccessFault check_list(std::uint32_t pd, std::span<const Sge> sges, std::uint32_t access) const;

  AccessFault check_remote(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                           std::uint64_t length, std::uint32_t access) const;
  AccessFault read_remote(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                          ByteSpan out);
  AccessFault write_remote(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                           ByteView in);
  AccessFault fetch_add(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                        std::uint64_t addend, std::uint64_t& original);
  AccessFault compare_swap(std::uint32_t pd, std::uint32_t rkey, std::uint64_t address,
                           std::uint64_t compare, std::uint64_t swap, std::uint64_t& original);

  // Reads this process's memory without any key, for inline data. False if it is not there.
  bool read_inline(std::uint64_t address, ByteSpan out) { return space_.copy_in(address, out); }

 private:
  struct Slot {
    RegionRequest region;
    std::uint8_t tag = 0;
    bool live = false;
  };

  const Slot* slot_of(std::uint32_t key) const;
  AccessFault check(std::uint32_t pd, std::uint32_t key, std::uint64_t address,
                    std::uint64_t length, std::uint32_t access) const;
  // Where a checked access lies in the address space.
  std::uint64_t locate(std::uint32_t key, std::uint64_t address) const;
  template <class Move>
  AccessFault walk(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                   std::uint64_t length, std::uint32_t access, Move move);

  AddressSpace& space_;
  Random& random_;
  std::uint32_t max_regions_;
  std::uint64_t max_region_bytes_;
  std::vector<Slot> slots_;          // Index 0 is never used.
  std::vector<std::uint32_t> free_;  // Indices of dead slots.
};

}  // namespace softhca
