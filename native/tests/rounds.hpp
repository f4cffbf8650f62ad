// How long a test goes on that is worth more than a check has time for.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace softhca::testing {

// SOFTHCA_TEST_ROUNDS in the environment says how many rounds.
inline std::size_t rounds(std::size_t usual) {
  const char* chosen = std::getenv("SOFTHCA_TEST_ROUNDS");
  return chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : usual;
}

}  // namespace softhca::testing
