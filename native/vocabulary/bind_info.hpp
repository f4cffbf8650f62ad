// What a memory window is bound to (struct ibv_mw_bind_info, struct ib_mw_bind_info): one value for
// windows of both types.
#pragma once

#include <cstdint>

namespace softhca {

struct BindInfo {
  std::uint32_t mr = 0;  // lkey of the region; a length of 0 needs none.
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t access = 0;  // AccessFlags.
};

}  // namespace softhca
