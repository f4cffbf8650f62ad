#include "adapter/path_mtu.hpp"

#include "vocabulary/enums.hpp"
#include "wire/packet.hpp"

namespace softhca {

std::uint8_t path_mtu_code(std::uint32_t ip_mtu_bytes, bool ipv4) {
  const auto header_bytes =
      static_cast<std::uint32_t>((ipv4 ? 28 : 48) + kMaxDatagramBytes - kMaxPathMtuBytes);
  std::uint8_t code = static_cast<std::uint8_t>(Mtu::MTU_4096);
  while (code > static_cast<std::uint8_t>(Mtu::MTU_256) &&
         mtu_bytes(code) + header_bytes > ip_mtu_bytes) {
    --code;
  }
  return code;
}

}  // namespace softhca
