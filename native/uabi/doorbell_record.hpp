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
// The size of a work request, which is never 0: the last word of it.
inline constexpr std::size_t kWrittenLastAt = 28;

// What is made of the record at which somebody looks who did not write it.
struct SeenDoorbell {
  enum class Kind : std::uint8_t { none, doorbell, other } kind = Kind::none;
  std::uint32_t handle = 0;
};

// `load(at, word)` is false where nothing can be read. The kernel may copy a record in any order,
// and other processors may see it in another one (arm64, and x86-64's string instructions): that
// the last word is there says nothing about those before it. The file was zeros before, so that
// what is 0 may be what was not seen yet; `wait_for_writer()` makes all seen of which anything was.
template <class Load, class WaitForWriter>
SeenDoorbell look_at_doorbell(Load load, WaitForWriter wait_for_writer) {
  using enum SeenDoorbell::Kind;
  std::uint32_t last = 0;
  std::uint32_t command = 0;
  std::uint32_t handle = 0;
  const auto look = [&] {
    return load(kWrittenLastAt, last) && load(0, command) && load(kQpHandleAt, handle);
  };
  if (!look()) return {};
  // Another command of this length may end in zeros. Nothing of it is looked at, so that it may
  // still be under way; but the doorbells behind it count.
  if (last == 0) return {command == 0 || command == kPostSend ? none : other};
  if (command == 0 || (command == kPostSend && handle == 0)) {
    wait_for_writer();
    if (!look()) return {};
  }
  return command == kPostSend ? SeenDoorbell{doorbell, handle} : SeenDoorbell{other};
}

}  // namespace softhca
