// Plain regions for messages that follow each other: keys do not change between them, so that a key
// is looked up only where it is another than the last.
#pragma once

#include <cstdint>

#include "memory/memory_table.hpp"
#include "vocabulary/sge.hpp"

namespace softhca {

// For as long as nothing else is done to the table.
class PlainAccess {
 public:
  PlainAccess(const MemoryTable& table, std::uint32_t pd, std::uint32_t access)
      : table_(table), pd_(pd), access_(access) {}

  // As MemoryTable::plain().
  [[gnu::always_inline]] const std::uint8_t* at(std::uint32_t key, std::uint64_t address,
                                                std::uint64_t length) {
    if (key != key_ || region_ == nullptr) look_up(key);
    return region_ == nullptr ? nullptr : region_->at(address, length);
  }
  [[gnu::always_inline]] const std::uint8_t* at(const Sge& sge) {
    return at(sge.lkey, sge.address, sge.length);
  }

 private:
  [[gnu::always_inline]] void look_up(std::uint32_t key) {
    region_ = table_.plain_region(pd_, key, access_);
    key_ = key;
  }

  const MemoryTable& table_;
  const std::uint32_t pd_;
  const std::uint32_t access_;
  std::uint32_t key_ = 0;
  const PlainRegion* region_ = nullptr;
};

}  // namespace softhca
