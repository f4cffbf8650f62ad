// A scatter/gather entry: a range of registered memory (ibv_sge).
#pragma once

#include <cstdint>

namespace softhca {

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

}  // namespace softhca
