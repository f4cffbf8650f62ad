// What a program writes to its descriptor to ring: struct ib_uverbs_post_send behind the header of
// write commands, without any work request.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {

inline constexpr std::uint32_t kDoorbellBytes = 32;
inline constexpr std::uint32_t kPostSend = 28;  // Its command.
inline constexpr std::size_t kInWordsAt = 4;
inline constexpr std::size_t kQpHandleAt = 16;
inline constexpr std::size_t kRequestsAt = 20;  // How many, and of how many elements.
// The size of a work request, which is never 0: where it can be seen, so can what is before it.
inline constexpr std::size_t kWrittenLastAt = 28;

}  // namespace softhca
