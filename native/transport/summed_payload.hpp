// A long payload on its way from the user's memory into a datagram, summed for the ICRC while it is
// copied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/folding_copy.hpp"
#include "memory/guarded_access.hpp"
#include "vocabulary/bytes.hpp"
#include "wire/crc32.hpp"
#include "wire/crc32_lanes.hpp"

namespace softhca {

// What is shorter is not worth the trouble.
inline constexpr std::size_t kLeastSummedBytes = 8 * FoldLanes::kBytes;

inline bool may_sum(std::size_t payload_bytes) {
  return payload_bytes >= kLeastSummedBytes && crc32_fold_factors() != nullptr;
}

// Copies to the place of `to`, and continues `crc` with what has come and the `pad` bytes behind
// it. False: some of it is not there. Precondition: may_sum().
inline bool copy_and_sum(const std::uint8_t* from, ByteSpan to, std::size_t pad,
                         std::uint32_t& crc) {
  const std::size_t steps = to.size() / FoldLanes::kBytes;
  const std::size_t folded = steps * FoldLanes::kBytes;
  const std::size_t rest = to.size() - folded;
  FoldLanes lanes;
  begin_lanes(lanes, crc);
  if (guarded_copy_folding(to.data(), from, steps, lanes, *crc32_fold_factors()) != 0 ||
      guarded_copy(to.data() + folded, from + folded, rest) != 0) {
    return false;
  }
  crc = crc32_of_lanes(lanes);
  if (rest + pad > 0) crc = crc32(crc, {to.data() + folded, rest + pad});
  return true;
}

}  // namespace softhca
