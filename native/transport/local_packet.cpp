#include "transport/local_packet.hpp"

namespace softhca {

std::uint64_t wire_bytes(const Packet& packet) {
  const std::uint64_t more = packet.psns - 1;
  const std::uint64_t payload = packet.payload_bytes();
  std::uint64_t bytes = packet.info->header_bytes + payload + (-payload & 3) + kIcrcBytes +
                        more * (kBthBytes + kIcrcBytes);
  // The first and the last response carry an AETH.
  if (more != 0 && packet.info->has(kReadResponse) && packet.info->has(kOnly)) bytes += 4;
  return bytes;
}

}  // namespace softhca
