// The memory regions and windows of an adapter: their keys, and every access to what they cover.
//
// A key is a 24-bit index and an 8-bit tag; a lookup compares the whole key, so a stale tag fails
// (IBTA Vol 1, 10.6.3). Rights, bounds and protection domains are checked at each access, when a
// packet is built or executed, not at posting.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/address_space.hpp"
#include "memory/key_slot.hpp"
#include "memory/payload.hpp"
#include "memory/plain_region.hpp"
#include "memory/read_ahead.hpp"
#include "memory/write_behind.hpp"
#include "vocabulary/bind_info.hpp"
#include "vocabulary/enums.hpp"
#include "vocabulary/observer.hpp"
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
  bool payload_gone = false;  // Nothing is wrong here, but what the sender had there is not there.

  bool ok() const { return reason == Reason::NONE; }
};

// On whose behalf memory is reached or keys are changed: a queue pair and its protection domain.
struct Accessor {
  std::uint32_t pd = 0;
  std::uint32_t qpn = 0;

  // A domain alone will do where no window of type 2 is concerned.
  Accessor(std::uint32_t domain, std::uint32_t number = 0)  // NOLINT(google-explicit-constructor)
      : pd(domain), qpn(number) {}
};

// What a region for fast registration is to consist of.
struct FastMapping {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;  // Address and bytes.
  std::uint64_t page_bytes = 4096;
  std::optional<std::uint64_t> iova;  // By default the address of the first byte.
  bool writable = true;
};

// Operands of a compare and swap under masks.
struct MaskedSwap {
  std::uint64_t compare = 0;
  std::uint64_t compare_mask = 0;
  std::uint64_t swap = 0;
  std::uint64_t swap_mask = 0;
};

// Where the eight bytes of a word lie, by whatever key; in no space: not in one place.
struct WordPlace {
  const AddressSpace* space = nullptr;
  std::uint64_t at = 0;
};

// How much of the table each kind of object may take.
struct MemoryLimits {
  std::uint32_t max_regions = 0;
  std::uint32_t max_windows = 0;
  std::uint64_t max_region_bytes = 0;
};

class MemoryTable {
 public:
  MemoryTable(AddressSpace& space, Random& random, const MemoryLimits& limits);
  MemoryTable(AddressSpace& space, Random& random, std::uint32_t max_regions,
              std::uint64_t max_region_bytes)
      : MemoryTable(space, random, MemoryLimits{max_regions, max_regions, max_region_bytes}) {}

  // --- regions (memory_table.cpp)
  // The key of the new region; it is its handle as well.
  Result<std::uint32_t> register_region(const RegionRequest& request);
  // EBUSY with windows bound to it.
  Status deregister_region(std::uint32_t handle);
  // The protection domain and rights of what has this handle or key; null if there is none.
  const RegionRequest* find(std::uint32_t key) const;

  // Changes what the region covers, its domain and its rights; keeps everything if it is refused.
  // The key is a new one unless the rights alone change.
  Result<std::uint32_t> reregister_region(std::uint32_t handle, const RegionRequest& request);

  // --- regions for fast registration (fast_region.cpp)
  Result<std::uint32_t> alloc_fast_region(std::uint32_t pd, MrType type, std::uint32_t max_pieces);
  // What the next registration will cover. EBUSY while the key is valid.
  Status map_fast_region(std::uint32_t handle, const FastMapping& mapping);
  // Executes a registration: from then on the region has `key`.
  AccessFault register_fast_region(const Accessor& who, std::uint32_t handle, std::uint32_t key,
                                   std::uint32_t access);

  // --- windows (memory_window.cpp)
  Result<std::uint32_t> alloc_window(std::uint32_t pd, MwType type);
  Status dealloc_window(std::uint32_t handle);
  // Executes a bind: from then on the window has `key`.
  AccessFault bind_window(const Accessor& who, std::uint32_t handle, MwType type, std::uint32_t key,
                          const BindInfo& info);
  // Type 1: the key that the next bind to be posted gives it. Then, that it was posted.
  Result<std::uint32_t> next_bind_key(std::uint32_t handle) const;
  void bind_posted(std::uint32_t handle) { ++object_of(handle)->posted_tag; }
  // Unbinds the type 2 windows of a queue pair that ends its connection.
  void release_windows_of(std::uint32_t qpn);
  std::uint32_t windows_of(std::uint32_t qpn) const;

  // --- keys that come and go (memory_window.cpp)
  // Executes an invalidation, by a LOCAL_INV, or by a SEND of the peer where `by_peer`.
  AccessFault invalidate(const Accessor& who, std::uint32_t key, bool by_peer);
  // What has this handle, with its present key; null if there is nothing.
  const KeySlot* find_object(std::uint32_t handle) const;
  // The same for who knows one of its keys, be it stale.
  const KeySlot* find_index(std::uint32_t key) const;
  static std::uint32_t key_of(const KeySlot& slot) { return (slot.handle & ~0xffu) | slot.tag; }

  // --- access (memory_access.cpp)
  // The process that registered what a fault is about has ended.
  bool owner_is_gone(const AccessFault& fault) const;
  // Copies the bytes at `offset` of the scatter/gather list into `out`. The `more` bytes behind
  // them are to follow soon.
  AccessFault gather(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                     ByteSpan out, std::uint64_t more = 0);
  // Copies `in` to `offset` of the list; every region needs LOCAL_WRITE. With `part`, what it says
  // may be put off and be lost.
  AccessFault scatter(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                      const Payload& in, MessagePart* part = nullptr);
  // Appends where these bytes of the list lie, checked as gather() checks them. `listed` is false
  // if they must not be reached without asking anew, each time.
  AccessFault list(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                   std::uint64_t length, std::vector<MemoryPiece>& pieces, bool& listed);
  // Checks the whole list without touching a byte.
  AccessFault check_list(std::uint32_t pd, std::span<const Sge> sges, std::uint32_t access) const;

  // The plain region that such an access may reach, if it is within it. Null: it is not so simple.
  // Good for as long as nothing is done to the table.
  [[gnu::always_inline]] const PlainRegion* plain_region(std::uint32_t pd, std::uint32_t key,
                                                         std::uint32_t access) const {
    const std::uint32_t index = key >> 8;
    if (index >= plain_.size() || observer != nullptr) return nullptr;
    const PlainRegion& region = plain_[index];
    return region.grants(pd, key, access) ? &region : nullptr;
  }
  // Where the bytes of an access to one lie; null as well if they are not within it.
  const std::uint8_t* plain(std::uint32_t pd, std::uint32_t key, std::uint64_t address,
                            std::uint64_t length, std::uint32_t access) const {
    const PlainRegion* const region = plain_region(pd, key, access);
    return region == nullptr ? nullptr : region->at(address, length);
  }
  // The same for the bytes from `offset` on of a list of one entry.
  const std::uint8_t* plain_entry(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                                  std::uint64_t length, std::uint32_t access) const;

  AccessFault check_remote(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                           std::uint64_t length, std::uint32_t access) const;
  AccessFault read_remote(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                          ByteSpan out, std::uint64_t more = 0);
  AccessFault write_remote(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                           const Payload& in, MessagePart* part = nullptr);
  // The same as list(), for what a peer may read.
  AccessFault list_remote(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                          std::uint64_t length, std::vector<MemoryPiece>& pieces, bool& listed);
  AccessFault fetch_add(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                        std::uint64_t addend, std::uint64_t& original);
  AccessFault compare_swap(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                           std::uint64_t compare, std::uint64_t swap, std::uint64_t& original);

  // Compares and swaps under masks; adds without carrying over the bits of `boundary`.
  AccessFault masked_compare_swap(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                                  const MaskedSwap& work, std::uint64_t& original);
  AccessFault masked_fetch_add(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                               std::uint64_t addend, std::uint64_t boundary,
                               std::uint64_t& original);
  // Where a word lies that such an exchange has just found.
  WordPlace place_of_word(std::uint32_t rkey, std::uint64_t address) const;
  // Puts into a copy of what a key has just given access to what a word held before.
  void put_back(std::uint32_t rkey, std::uint64_t address, ByteSpan copy, const WordPlace& place,
                std::uint64_t word) const;
  // Eight bytes at once, as memory holds them.
  AccessFault atomic_write(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                           std::uint64_t value, std::uint64_t& original);
  // The right to flush: of a range, or of whatever the key covers.
  AccessFault check_flush(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                          std::uint64_t length, bool whole, std::uint32_t access) const;

  // Reads the table's own space without any key, for inline data. False if it is not there.
  bool read_inline(std::uint64_t address, ByteSpan out) { return space_.copy_in(address, out); }

  // What gather() and read_remote() have fetched for later. To be forgotten as soon as somebody may
  // have changed it.
  ReadAhead read_ahead;
  // What scatter() and write_remote() have put off.
  WriteBehind write_behind;

  // Told of every byte of the user's that changes; null: nobody.
  Observer* observer = nullptr;

  // Told of the index of a key before what it gives access to may change hands.
  std::function<void(std::uint32_t)> revoking;

 private:
  // Written so that nothing can wrap: the offset is at most the length, and the rest is compared
  // with what is left.
  static bool holds(const RegionRequest& region, std::uint64_t address, std::uint64_t length) {
    return address >= region.iova && address - region.iova <= region.length &&
           length <= region.length - (address - region.iova);
  }
  // Copies bytes out to the user, and tells.
  bool put(AddressSpace& space, std::uint64_t at, const Payload& from, std::uint64_t offset,
           std::uint64_t length, std::uint32_t key, std::uint64_t address, MessagePart* part);
  bool is_watched(std::uint32_t key) const;
  bool runs_on(std::uint32_t key) const;
  void revoke(const KeySlot& slot) {
    if (revoking) revoking(slot.handle >> 8);
  }
  // Takes a slot and gives it a handle, which is its first key.
  KeySlot& take_slot(KeyKind kind);
  void free_slot(KeySlot& slot);
  // What a slot's key stands for has changed.
  void note_plain(const KeySlot& slot);

  const KeySlot* slot_of(std::uint32_t key) const;
  KeySlot* slot_of(std::uint32_t key) {
    return const_cast<KeySlot*>(static_cast<const MemoryTable*>(this)->slot_of(key));
  }
  KeySlot* object_of(std::uint32_t handle) { return const_cast<KeySlot*>(find_object(handle)); }
  Reason check_bind(const Accessor& who, const KeySlot& window, std::uint32_t key,
                    const BindInfo& info, const KeySlot* region) const;
  void unbind(KeySlot& window);
  // Tells the observer what the slot's key stands for, or that it stands for nothing any more.
  void tell_named(const KeySlot& slot) const;
  void tell_unnamed(const KeySlot& slot) const;

  AccessFault check_local(std::uint32_t pd, std::uint32_t key, std::uint64_t address,
                          std::uint64_t length, std::uint32_t access) const;
  Reason check_range(const KeySlot& slot, std::uint64_t address, std::uint64_t length,
                     std::uint32_t access) const;
  // Calls `move(space, address, done, step)` for each run of bytes that a checked range consists
  // of; false, as soon as it is.
  template <class Move>
  bool for_each_run(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                    Move move) const;
  // Checks an access to a word and runs `exchange(space, place)` on its eight bytes.
  template <class Exchange>
  AccessFault exchange_remote(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                              std::uint32_t access, Exchange exchange);
  // Replaces the word by `change(word)`.
  template <class Change>
  AccessFault change_word(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                          std::uint32_t access, Change change, std::uint64_t& original);
  template <class Move>
  AccessFault walk(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                   std::uint64_t length, std::uint32_t access, Move move);

  AddressSpace& space_;
  Random& random_;
  MemoryLimits limits_;
  std::uint32_t regions_ = 0;
  std::uint32_t windows_ = 0;
  std::uint32_t bound_type_2_ = 0;  // Without any, queue pairs end without a search.
  std::vector<KeySlot> slots_;      // Index 0 is never used.
  std::vector<PlainRegion> plain_;  // By the same indices: what is to be said of those that are so.
  std::deque<std::uint32_t> free_;  // Indices of dead slots, the longest dead first.
};

}  // namespace softhca
