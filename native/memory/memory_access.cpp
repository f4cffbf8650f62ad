// Every access to user bytes: checked against a key, then moved run by run.

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "memory/guarded_access.hpp"
#include "memory/memory_table.hpp"

namespace softhca {
namespace {

// False: its bytes are somewhere else, or what it goes to is not there. A copy can be made again.
bool copies_plainly(const Payload& in, const std::uint8_t* to) {
  return in.pieces.empty() &&
         guarded_copy(const_cast<std::uint8_t*>(to), in.bytes.data(), in.bytes.size()) == 0;
}

}  // namespace

Reason MemoryTable::check_range(const KeySlot& slot, std::uint64_t address, std::uint64_t length,
                                std::uint32_t access) const {
  const RegionRequest& region = slot.region;
  if (slot.state != KeyState::VALID) {
    return Reason::KEY_NOT_VALID;
  }
  if ((region.access & access) != access) {
    return Reason::MISSING_RIGHT;
  }
  return holds(region, address, length) ? Reason::NONE : Reason::OUT_OF_BOUNDS;
}

AccessFault MemoryTable::check_local(std::uint32_t pd, std::uint32_t key, std::uint64_t address,
                                     std::uint64_t length, std::uint32_t access) const {
  const KeySlot* slot = slot_of(key);
  Reason reason = Reason::UNKNOWN_KEY;
  if (slot != nullptr) {
    // A window gives its rights to peers alone (IBTA Vol 1, 10.6.7).
    reason = slot->is_window()       ? Reason::WINDOW_KEY
             : slot->region.pd != pd ? Reason::OTHER_PD
                                     : check_range(*slot, address, length, access);
  }
  return reason == Reason::NONE ? AccessFault{} : AccessFault{reason, key, address, length};
}

AccessFault MemoryTable::check_remote(const Accessor& who, std::uint32_t rkey,
                                      std::uint64_t address, std::uint64_t length,
                                      std::uint32_t access) const {
  const KeySlot* slot = slot_of(rkey);
  Reason reason = Reason::UNKNOWN_KEY;
  if (slot != nullptr) {
    const bool bound = slot->kind == KeyKind::WINDOW_2 && slot->state == KeyState::VALID;
    reason = slot->region.pd != who.pd       ? Reason::OTHER_PD
             : bound && slot->qpn != who.qpn ? Reason::OTHER_QP
                                             : check_range(*slot, address, length, access);
  }
  return reason == Reason::NONE ? AccessFault{} : AccessFault{reason, rkey, address, length};
}

template <class Move>
bool MemoryTable::for_each_run(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                               Move move) const {
  const KeySlot* slot = &slots_[key >> 8];
  if (slot->is_window()) {
    address = slot->region.address + (address - slot->region.iova);
    slot = &slots_[slot->under];
  }
  const std::uint64_t offset = address - slot->region.iova;
  if (length == 0) {
    return true;
  }
  AddressSpace& space = slot->region.space ? *slot->region.space : space_;
  if (slot->kind != KeyKind::FAST_REGION) {
    const std::uint64_t at = slot->region.address + offset;
    return move_present(slot->region.watched.get(), at, length,
                        [&] { return move(space, at, std::uint64_t{0}, length); });
  }
  auto piece = std::ranges::upper_bound(slot->pieces, offset, {}, &Piece::begin) - 1;
  for (std::uint64_t done = 0; done < length; ++piece) {
    const std::uint64_t into = offset + done - piece->begin;
    const std::uint64_t step = std::min(piece->length - into, length - done);
    if (!move(space, piece->address + into, done, step)) {
      return false;
    }
    done += step;
  }
  return true;
}

template <class Move>
AccessFault MemoryTable::walk(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                              std::uint64_t length, std::uint32_t access, Move move) {
  std::uint64_t done = 0;
  for (const Sge& sge : sges) {
    if (done == length) {
      break;
    }
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint64_t step = std::min<std::uint64_t>(sge.length - offset, length - done);
    // The whole entry is checked, not the piece: an entry that leaves its region is wrong from its
    // first byte.
    AccessFault fault = check_local(pd, sge.lkey, sge.address, sge.length, access);
    if (!fault.ok()) {
      return fault;
    }
    const std::uint64_t from = sge.address + offset;
    const bool moved = for_each_run(
        sge.lkey, from, step,
        [&](AddressSpace& space, std::uint64_t at, std::uint64_t before, std::uint64_t run) {
          return move(space, at, done + before, run, sge.lkey, from + before);
        });
    if (!moved) {
      return {Reason::MEMORY_GONE, sge.lkey, sge.address + offset, step};
    }
    done += step;
    offset = 0;
  }
  if (done != length) {
    return {Reason::TOO_LONG, 0, 0, length};
  }
  return {};
}

const std::uint8_t* MemoryTable::plain_entry(std::uint32_t pd, std::span<const Sge> sges,
                                             std::uint64_t offset, std::uint64_t length,
                                             std::uint32_t access) const {
  if (sges.size() != 1 || offset + length > sges[0].length) {
    return nullptr;
  }
  // The whole entry is checked, as everywhere.
  const std::uint8_t* entry = plain(pd, sges[0].lkey, sges[0].address, sges[0].length, access);
  return entry == nullptr ? nullptr : entry + offset;
}

AccessFault MemoryTable::gather(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                                ByteSpan out, std::uint64_t more) {
  if (const std::uint8_t* from = plain_entry(pd, sges, offset, out.size(), 0);
      from != nullptr && guarded_copy(out.data(), from, out.size()) == 0) {
    return {};
  }
  return walk(pd, sges, offset, out.size(), 0,
              [&](AddressSpace& space, std::uint64_t at, std::uint64_t done, std::uint64_t step,
                  std::uint32_t key, std::uint64_t) {
                // Of one entry the whole length is checked.
                const bool goes_on = sges.size() == 1 && runs_on(key);
                const std::uint64_t behind = goes_on ? sges[0].length - offset - step : 0;
                return read_ahead.copy_in(space, at, out.subspan(done, step),
                                          std::min(more, behind));
              });
}

AccessFault MemoryTable::list(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                              std::uint64_t length, std::vector<MemoryPiece>& pieces,
                              bool& listed) {
  listed = true;
  return walk(pd, sges, offset, length, 0,
              [&](AddressSpace& space, std::uint64_t at, std::uint64_t, std::uint64_t step,
                  std::uint32_t key, std::uint64_t) {
                listed = listed && !is_watched(key);
                pieces.push_back({&space, at, step, key});
                return true;
              });
}

AccessFault MemoryTable::list_remote(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                                     std::uint64_t length, std::vector<MemoryPiece>& pieces,
                                     bool& listed) {
  AccessFault fault = check_remote(who, rkey, address, length, kAccessRemoteRead);
  const auto note = [&](AddressSpace& space, std::uint64_t at, std::uint64_t, std::uint64_t step) {
    pieces.push_back({&space, at, step, rkey});
    return true;
  };
  listed = fault.ok() && !is_watched(rkey);
  if (fault.ok() && !for_each_run(rkey, address, length, note)) {
    fault = {Reason::MEMORY_GONE, rkey, address, length};
  }
  return fault;
}

// Somebody must be asked at each access whether the memory is still there.
bool MemoryTable::is_watched(std::uint32_t key) const {
  const KeySlot* slot = &slots_[key >> 8];
  if (slot->is_window()) {
    slot = &slots_[slot->under];
  }
  return slot->region.watched != nullptr;
}

// What lies behind a byte in the region lies behind it in memory, and may be reached without
// asking.
bool MemoryTable::runs_on(std::uint32_t key) const {
  const KeySlot* slot = &slots_[key >> 8];
  if (slot->is_window()) {
    slot = &slots_[slot->under];
  }
  return slot->kind == KeyKind::REGION && slot->region.watched == nullptr;
}

bool MemoryTable::owner_is_gone(const AccessFault& fault) const {
  if (fault.reason != Reason::MEMORY_GONE) {
    return false;
  }
  const KeySlot* slot = slot_of(fault.key);
  if (slot != nullptr && slot->is_window()) {
    slot = &slots_[slot->under];
  }
  return slot != nullptr && slot->region.space && slot->region.space->is_gone();
}

bool MemoryTable::put(AddressSpace& space, std::uint64_t at, const Payload& from,
                      std::uint64_t offset, std::uint64_t length, std::uint32_t key,
                      std::uint64_t address, MessagePart* part) {
  if (part != nullptr && from.pieces.empty() && observer == nullptr && space.foreign() != nullptr &&
      runs_on(key)) {
    return write_behind.copy_out(space, at, from.bytes.subspan(offset, length), *part);
  }
  write_behind.flush();
  if (part != nullptr && part->lost) {
    return false;
  }
  if (observer == nullptr) {
    return copy_payload(from, offset, space, at, length);
  }
  std::vector<std::uint8_t> before(length);
  std::vector<std::uint8_t> after(length);
  if (!space.copy_in(at, before) || !copy_payload(from, offset, space, at, length) ||
      !space.copy_in(at, after)) {
    return false;
  }
  observer->wrote(key, address, before, after);
  return true;
}

AccessFault MemoryTable::scatter(std::uint32_t pd, std::span<const Sge> sges, std::uint64_t offset,
                                 const Payload& in, MessagePart* part) {
  if (const std::uint8_t* to = plain_entry(pd, sges, offset, in.size(), kAccessLocalWrite);
      to != nullptr && copies_plainly(in, to)) {
    return {};
  }
  AccessFault fault = walk(pd, sges, offset, in.size(), kAccessLocalWrite,
                           [&](AddressSpace& space, std::uint64_t at, std::uint64_t done,
                               std::uint64_t step, std::uint32_t key, std::uint64_t address) {
                             return put(space, at, in, done, step, key, address, part);
                           });
  fault.payload_gone = fault.reason == Reason::MEMORY_GONE && !is_readable(in);
  return fault;
}

AccessFault MemoryTable::check_list(std::uint32_t pd, std::span<const Sge> sges,
                                    std::uint32_t access) const {
  for (const Sge& sge : sges) {
    if (sge.length == 0) {
      continue;
    }
    AccessFault fault = check_local(pd, sge.lkey, sge.address, sge.length, access);
    if (!fault.ok()) {
      return fault;
    }
  }
  return {};
}

AccessFault MemoryTable::read_remote(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                                     ByteSpan out, std::uint64_t more) {
  AccessFault fault = check_remote(who, rkey, address, out.size(), kAccessRemoteRead);
  const bool goes_on = more != 0 && fault.ok() && runs_on(rkey) &&
                       check_remote(who, rkey, address, out.size() + more, kAccessRemoteRead).ok();
  const auto copy = [&](AddressSpace& space, std::uint64_t at, std::uint64_t done,
                        std::uint64_t step) {
    return read_ahead.copy_in(space, at, out.subspan(done, step), goes_on ? more : 0);
  };
  if (fault.ok() && !for_each_run(rkey, address, out.size(), copy)) {
    fault = {Reason::MEMORY_GONE, rkey, address, out.size()};
  }
  return fault;
}

AccessFault MemoryTable::write_remote(const Accessor& who, std::uint32_t rkey,
                                      std::uint64_t address, const Payload& in, MessagePart* part) {
  if (const std::uint8_t* to = plain(who.pd, rkey, address, in.size(), kAccessRemoteWrite);
      to != nullptr && copies_plainly(in, to)) {
    return {};
  }
  AccessFault fault = check_remote(who, rkey, address, in.size(), kAccessRemoteWrite);
  const auto copy = [&](AddressSpace& space, std::uint64_t at, std::uint64_t done,
                        std::uint64_t step) {
    return put(space, at, in, done, step, rkey, address + done, part);
  };
  if (fault.ok() && !for_each_run(rkey, address, in.size(), copy)) {
    fault = {Reason::MEMORY_GONE, rkey, address, in.size(), !is_readable(in)};
  }
  return fault;
}

template <class Exchange>
AccessFault MemoryTable::exchange_remote(const Accessor& who, std::uint32_t rkey,
                                         std::uint64_t address, std::uint32_t access,
                                         Exchange exchange) {
  AccessFault fault = check_remote(who, rkey, address, 8, access);
  if (!fault.ok()) {
    return fault;
  }
  // In one place, and a word there: `address` may be one where the memory itself is not, and then
  // processors exchange it slowly or not at all.
  bool is_word = true;
  const bool done =
      for_each_run(rkey, address, 8,
                   [&](AddressSpace& space, std::uint64_t at, std::uint64_t, std::uint64_t step) {
                     is_word = step == 8 && at % 8 == 0;
                     if (!is_word || observer == nullptr) {
                       return is_word && exchange(space, at);
                     }
                     std::array<std::uint8_t, 8> before;
                     std::array<std::uint8_t, 8> after;
                     const bool exchanged = space.copy_in(at, before) && exchange(space, at);
                     if (exchanged && space.copy_in(at, after)) {
                       observer->wrote(rkey, address, before, after);
                     }
                     return exchanged;
                   });
  if (!done) {
    fault = {is_word ? Reason::MEMORY_GONE : Reason::MISALIGNED, rkey, address, 8};
  }
  return fault;
}

WordPlace MemoryTable::place_of_word(std::uint32_t rkey, std::uint64_t address) const {
  WordPlace place;
  for_each_run(rkey, address, 8,
               [&](AddressSpace& space, std::uint64_t at, std::uint64_t, std::uint64_t step) {
                 if (step == 8) place = {&space, at};
                 return step == 8;
               });
  return place;
}

void MemoryTable::put_back(std::uint32_t rkey, std::uint64_t address, ByteSpan copy,
                           const WordPlace& place, std::uint64_t word) const {
  std::array<std::uint8_t, sizeof word> bytes;
  std::memcpy(bytes.data(), &word, sizeof word);
  for_each_run(
      rkey, address, copy.size(),
      [&](AddressSpace& space, std::uint64_t at, std::uint64_t before, std::uint64_t step) {
        for (std::size_t byte = 0; &space == place.space && byte < bytes.size(); ++byte) {
          // Below the run it wraps, and is beyond its end as well.
          if (const std::uint64_t into = place.at + byte - at; into < step) {
            copy[before + into] = bytes[byte];
          }
        }
        return true;
      });
}

AccessFault MemoryTable::fetch_add(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                                   std::uint64_t addend, std::uint64_t& original) {
  return exchange_remote(
      who, rkey, address, kAccessRemoteAtomic,
      [&](AddressSpace& space, std::uint64_t at) { return space.fetch_add(at, addend, original); });
}

AccessFault MemoryTable::compare_swap(const Accessor& who, std::uint32_t rkey,
                                      std::uint64_t address, std::uint64_t compare,
                                      std::uint64_t swap, std::uint64_t& original) {
  return exchange_remote(who, rkey, address, kAccessRemoteAtomic,
                         [&](AddressSpace& space, std::uint64_t at) {
                           return space.compare_swap(at, compare, swap, original);
                         });
}

// Reads, computes, and exchanges if nobody changed the word meanwhile; else once more.
template <class Change>
AccessFault MemoryTable::change_word(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                                     std::uint32_t access, Change change, std::uint64_t& original) {
  return exchange_remote(who, rkey, address, access, [&](AddressSpace& space, std::uint64_t at) {
    // Comparing with anything tells what is there.
    std::uint64_t expected = 0;
    if (!space.compare_swap(at, 0, 0, expected)) {
      return false;
    }
    while (space.compare_swap(at, expected, change(expected), original)) {
      if (original == expected) {
        return true;
      }
      expected = original;
    }
    return false;
  });
}

AccessFault MemoryTable::masked_compare_swap(const Accessor& who, std::uint32_t rkey,
                                             std::uint64_t address, const MaskedSwap& work,
                                             std::uint64_t& original) {
  const auto change = [&](std::uint64_t word) {
    const bool equal = ((word ^ work.compare) & work.compare_mask) == 0;
    return equal ? (word & ~work.swap_mask) | (work.swap & work.swap_mask) : word;
  };
  return change_word(who, rkey, address, kAccessRemoteAtomic, change, original);
}

AccessFault MemoryTable::masked_fetch_add(const Accessor& who, std::uint32_t rkey,
                                          std::uint64_t address, std::uint64_t addend,
                                          std::uint64_t boundary, std::uint64_t& original) {
  // The last bit of a field takes the carry of the bits below it and gives none to those above.
  const auto change = [=](std::uint64_t word) {
    return ((word & ~boundary) + (addend & ~boundary)) ^ ((word ^ addend) & boundary);
  };
  return change_word(who, rkey, address, kAccessRemoteAtomic, change, original);
}

AccessFault MemoryTable::atomic_write(const Accessor& who, std::uint32_t rkey,
                                      std::uint64_t address, std::uint64_t value,
                                      std::uint64_t& original) {
  return change_word(
      who, rkey, address, kAccessRemoteWrite, [=](std::uint64_t) { return value; }, original);
}

AccessFault MemoryTable::check_flush(const Accessor& who, std::uint32_t rkey, std::uint64_t address,
                                     std::uint64_t length, bool whole, std::uint32_t access) const {
  const KeySlot* slot = slot_of(rkey);
  if (whole && slot != nullptr) {
    address = slot->region.iova;
    length = 0;
  }
  return check_remote(who, rkey, address, length, access);
}

}  // namespace softhca
