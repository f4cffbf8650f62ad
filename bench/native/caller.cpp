#include "caller.hpp"

#include <cstdio>
#include <cstdlib>

namespace softhca::bench {
namespace {

constexpr std::uint32_t kDepth = 256;

}  // namespace

void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

template <class Function>
auto Caller::call(const char* what, Function&& function) {
  auto result = device_.driver->with_adapter(
      [&](Adapter& adapter, std::uint64_t now_ns) { return function(adapter, now_ns); });
  if constexpr (std::is_same_v<decltype(result), Status>) {
    if (!result.ok()) give_up(what);
  } else {
    if (!result.ok()) give_up(what);
    return result.value;
  }
}

Caller::Caller(std::size_t bytes, bool udp_only)
    : udp_only_(udp_only), source_(bytes, 1), target_(bytes) {
  OpenOptions options;
  options.shortcut = !udp_only_;
  const DriverError error = open_device(options, device_);
  if (!error.ok()) give_up(error.message);
  const auto pd = call("pd", [](Adapter& adapter, auto) { return adapter.alloc_pd(); });
  auto make_cq = [](Adapter& adapter, auto) { return adapter.create_cq(2 * kDepth, false); };
  send_cq = call("cq", make_cq);
  recv_cq = call("cq", make_cq);
  auto reg = [&](std::vector<std::uint8_t>& memory) {
    return call("mr", [&](Adapter& adapter, auto) {
      const auto address = reinterpret_cast<std::uint64_t>(memory.data());
      return adapter.reg_mr(pd, address, memory.size(), address, 1);
    });
  };
  source_mr_ = reg(source_);
  target_mr_ = reg(target_);
  recv_.sges = {{reinterpret_cast<std::uint64_t>(target_.data()), static_cast<std::uint32_t>(bytes),
                 target_mr_.lkey}};
  QpInit init;
  init.pd = pd;
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.cap = {.max_send_wr = kDepth, .max_recv_wr = kDepth};
  qpn_ = call("qp", [&](Adapter& adapter, auto) { return adapter.create_qp(init); });
}

Card Caller::card() const { return {device_.local.gid, qpn_, 0}; }

void Caller::modify(const QpAttr& attr, std::uint32_t mask) {
  call("modify", [&](Adapter& adapter, std::uint64_t now_ns) {
    return adapter.modify_qp(qpn_, attr, mask, now_ns);
  });
}

void Caller::connect(const Card& peer) {
  if (!udp_only_) device_.driver->meet(peer.gid);
  QpAttr attr;
  attr.qp_state = QpState::INIT;
  modify(attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags);
  attr.qp_state = QpState::RTR;
  attr.ah_attr.dgid = peer.gid;
  attr.path_mtu = 5;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = 16;
  attr.min_rnr_timer = 12;
  modify(attr, kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic |
                   kQpMinRnrTimer);
  attr.qp_state = QpState::RTS;
  attr.timeout = 16;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 16;
  modify(attr, kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic);
}

void Caller::post_send(const SendWr& wr) {
  const std::array<const SendWr*, 1> list{&wr};
  std::size_t posted = 0;
  call("post_send", [&](Adapter& adapter, std::uint64_t now_ns) {
    return adapter.post_send(qpn_, list, posted, now_ns);
  });
}

void Caller::post_recv(std::uint32_t count) {
  const std::vector<const RecvWr*> list(count, &recv_);
  std::size_t posted = 0;
  call("post_recv", [&](Adapter& adapter, std::uint64_t now_ns) {
    return adapter.post_recv(qpn_, list, posted, now_ns);
  });
}

std::size_t Caller::poll(std::uint32_t cq, std::span<Completion> out) {
  const auto polled = device_.driver->poll_cq(cq, out);
  if (!polled.ok()) give_up("poll");
  for (const Completion& completion : out.first(polled.value)) {
    if (completion.status != WcStatus::SUCCESS) give_up("a completion in error");
  }
  return polled.value;
}

SendWr Caller::send_of_everything(bool signaled) const {
  SendWr wr;
  wr.opcode = WrOpcode::SEND;
  wr.send_flags = signaled ? static_cast<std::uint32_t>(kSendSignaled) : 0;
  wr.sges = {{reinterpret_cast<std::uint64_t>(source_.data()),
              static_cast<std::uint32_t>(source_.size()), source_mr_.lkey}};
  return wr;
}

}  // namespace softhca::bench
