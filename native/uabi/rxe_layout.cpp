#include "uabi/rxe_layout.hpp"

#include <algorithm>
#include <cstring>

namespace softhca {
namespace {

constexpr std::uint32_t kKnownFlags = kSendFence | kSendSignaled | kSendSolicited | kSendInline;

template <class T>
T field(ByteView element, std::size_t at) {
  T value;
  std::memcpy(&value, element.data() + at, sizeof value);
  return value;
}

template <class T>
void put(std::uint8_t* to, std::size_t at, T value) {
  std::memcpy(to + at, &value, sizeof value);
}

bool sends_bytes(WrOpcode opcode) {
  return opcode == WrOpcode::SEND || opcode == WrOpcode::SEND_WITH_IMM ||
         opcode == WrOpcode::SEND_WITH_INV || opcode == WrOpcode::RDMA_WRITE ||
         opcode == WrOpcode::RDMA_WRITE_WITH_IMM;
}

void decode_list(ByteView list, std::uint32_t count, std::vector<Sge>& sges) {
  for (std::size_t at = 0; at < count * kSgeBytes; at += kSgeBytes) {
    sges.push_back({field<std::uint64_t>(list, at), field<std::uint32_t>(list, at + 8),
                    field<std::uint32_t>(list, at + 12)});
  }
}

// The part of an element that depends on the opcode, from byte 24 on; false if there is none.
bool decode_operation(ByteView element, bool datagram, SendWr& wr) {
  switch (wr.opcode) {
    case WrOpcode::SEND:
    case WrOpcode::SEND_WITH_IMM:
    case WrOpcode::SEND_WITH_INV:
      if (datagram) {
        wr.remote_qpn = field<std::uint32_t>(element, 24);
        wr.remote_qkey = field<std::uint32_t>(element, 28);
        wr.ah = field<std::uint32_t>(element, 36);
      }
      return true;
    case WrOpcode::RDMA_WRITE:
    case WrOpcode::RDMA_WRITE_WITH_IMM:
    case WrOpcode::RDMA_READ:
    case WrOpcode::ATOMIC_WRITE:
      wr.remote_address = field<std::uint64_t>(element, 24);
      wr.rkey = field<std::uint32_t>(element, 32);
      return true;
    case WrOpcode::ATOMIC_CMP_AND_SWP:
    case WrOpcode::ATOMIC_FETCH_AND_ADD:
      wr.remote_address = field<std::uint64_t>(element, 24);
      wr.compare_add = field<std::uint64_t>(element, 32);
      wr.swap = field<std::uint64_t>(element, 40);
      wr.rkey = field<std::uint32_t>(element, 48);
      return true;
    case WrOpcode::FLUSH:
      wr.remote_address = field<std::uint64_t>(element, 24);
      wr.rkey = field<std::uint32_t>(element, 36);
      wr.flush = {field<std::uint32_t>(element, 184), field<std::uint8_t>(element, 40),
                  field<std::uint8_t>(element, 41)};
      return true;
    case WrOpcode::BIND_MW:
      wr.memory.object = field<std::uint32_t>(element, 44);
      wr.memory.key = field<std::uint32_t>(element, 48);
      wr.memory.bind = {field<std::uint32_t>(element, 40), field<std::uint64_t>(element, 24),
                        field<std::uint64_t>(element, 32), field<std::uint32_t>(element, 52)};
      return true;
    case WrOpcode::LOCAL_INV:
      return true;
    default:
      return false;
  }
}

// Where other devices tell of the network header of a datagram, UCX up to 1.18 expects it in the
// service level, which nothing else means anything in: 1 is IPv6, 2 is IPv4. Without it, UCX drops
// every datagram.
std::uint8_t service_level(const Completion& completion) {
  switch (completion.ip_version) {
    case 4:
      return 2;
    case 6:
      return 1;
    default:
      return completion.sl;
  }
}

}  // namespace

void decode_send(ByteView element, bool datagram, SendWr& wr) {
  std::vector<Sge> sges = std::move(wr.sges);
  sges.clear();
  wr = {};
  wr.sges = std::move(sges);
  wr.wr_id = field<std::uint64_t>(element, 0);
  const auto opcode = field<std::uint32_t>(element, 12);
  const auto list = field<std::uint32_t>(element, 196);
  const auto length = field<std::uint32_t>(element, 184);
  const std::size_t room = element.size() - kSendElementHeader;
  wr.opcode = static_cast<WrOpcode>(std::min<std::uint32_t>(opcode, 0xff));
  // Linux's rxe ignores the flags that it does not know.
  wr.send_flags = field<std::uint32_t>(element, 16) & kKnownFlags;
  const auto extra = field<std::uint32_t>(element, 20);
  const bool invalidates = wr.opcode == WrOpcode::SEND_WITH_INV || wr.opcode == WrOpcode::LOCAL_INV;
  (invalidates ? wr.invalidate_rkey : wr.immediate) =
      invalidates ? extra : __builtin_bswap32(extra);
  if (!decode_operation(element, datagram, wr)) {
    wr.refused = Reason::UNSUPPORTED;
    return;
  }
  const ByteView rest = element.subspan(kSendElementHeader);
  // Requests of the extended interface tell of inline data by its length alone.
  const bool is_inline =
      sends_bytes(wr.opcode) && ((wr.send_flags & kSendInline) != 0 || (list == 0 && length != 0));
  const bool atomic_write = wr.opcode == WrOpcode::ATOMIC_WRITE;
  if (is_inline || atomic_write) {
    const std::uint32_t bytes = atomic_write ? 8 : length;
    wr.send_flags |= kSendInline;
    wr.sges.push_back({reinterpret_cast<std::uint64_t>(rest.data()), bytes, 0});
    wr.refused = bytes > room ? Reason::TOO_LONG : Reason::NONE;
    return;
  }
  wr.send_flags &= ~std::uint32_t{kSendInline};
  if (list > room / kSgeBytes) {
    wr.refused = Reason::TOO_LONG;
    return;
  }
  decode_list(rest, list, wr.sges);
}

void decode_receive(ByteView element, std::uint32_t max_sge, RecvWr& wr) {
  wr.wr_id = field<std::uint64_t>(element, 0);
  wr.sges.clear();
  const auto list = field<std::uint32_t>(element, 28);
  const ByteView rest = element.subspan(kReceiveElementHeader);
  if (list <= max_sge && list <= rest.size() / kSgeBytes) {
    decode_list(rest, list, wr.sges);
  }
}

void encode_completion(const Completion& completion, std::uint8_t* to) {
  std::memset(to, 0, kCompletionBytes);
  put(to, 0, completion.wr_id);
  put(to, 8, static_cast<std::uint32_t>(completion.status));
  put(to, 12, static_cast<std::uint32_t>(completion.opcode));
  put(to, 16, static_cast<std::uint32_t>(completion.reason));
  put(to, 20, completion.byte_len);
  const bool immediate = (completion.wc_flags & kWcWithImm) != 0;
  put(to, 24,
      immediate ? __builtin_bswap32(completion.immediate_or_rkey) : completion.immediate_or_rkey);
  put(to, 28, completion.qpn);
  put(to, 32, completion.source_qpn);
  put(to, 36, completion.wc_flags);
  put(to, 40, completion.pkey_index);
  put(to, 44, service_level(completion));
  put(to, 46, completion.port);
}

}  // namespace softhca
