#include "fuzz/victim.hpp"

#include <cstdio>
#include <cstdlib>

namespace softhca::fuzz {
namespace {

constexpr std::uint32_t kPathMtuCode = 1;  // 256 bytes: messages of many packets stay small.

// The set-up must not fail; if it does, the run means nothing.
void must(const Status& status) {
  if (!status.ok()) {
    std::printf("set-up refused: %s %s\n", status.argument, status.rule);
    std::abort();
  }
}

}  // namespace

Victim::Victim(std::uint64_t seed, LocalPaths* paths) : random_(seed) {
  const std::uint8_t own[4] = {10, 0, 0, 2};
  const std::uint8_t peer[4] = {10, 0, 0, 1};
  own_gid_ = Gid::from_ipv4(own);
  peer_gid_ = Gid::from_ipv4(peer);
  AdapterConfig config;
  config.gids = {own_gid_};
  config.seed = seed;
  config.active_mtu = 3;
  config.shortcut = paths != nullptr;
  adapter_ = std::make_unique<Adapter>(config);
  adapter_->set_paths(paths);
  pd_ = adapter_->alloc_pd().value;
  other_pd_ = adapter_->alloc_pd().value;
  cq_ = adapter_->create_cq(65536).value;

  const std::size_t writable = arena_.add(4096, Right::WRITE);
  const std::size_t readable = arena_.add(2048, Right::READ);
  const std::size_t secret = arena_.add(2048, Right::NOTHING);
  const std::size_t lent = arena_.add(2048, Right::WRITE);
  const std::size_t pieces[] = {arena_.add(600, Right::WRITE), arena_.add(1400, Right::WRITE)};
  const std::size_t foreign = arena_.add(2048, Right::NOTHING);
  landing_ = arena_.add(8192, Right::LAND);
  receiving_ = arena_.add(8192, Right::LAND);
  sending_ = arena_.add(4096, Right::READ);
  arena_.fill();

  const auto reg = [&](std::uint32_t pd, std::size_t area, std::uint32_t access) {
    const auto at = reinterpret_cast<std::uint64_t>(arena_.at(area));
    const Result<MrInfo> mr = adapter_->reg_mr(pd, at, arena_.size(area), at, access);
    must(mr.status);
    // The fuzzer knows every key, also of regions that it may not touch.
    keys_.push_back({mr.value.lkey, at, static_cast<std::uint32_t>(arena_.size(area))});
    return mr.value.lkey;
  };
  reg(pd_, writable,
      kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic |
          kAccessFlushGlobal);
  reg(pd_, readable, kAccessRemoteRead);
  reg(pd_, secret, 0);
  reg(other_pd_, foreign, kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead);
  landing_key_ = reg(pd_, landing_, kAccessLocalWrite);
  receiving_key_ = reg(pd_, receiving_, kAccessLocalWrite);
  sending_key_ = reg(pd_, sending_, 0);

  xrcd_ = adapter_->alloc_xrcd().value;
  xrc_srq_ = adapter_->create_srq(pd_, {64, 2, 0}, xrcd_, cq_).value;
  for (const QpType type :
       {QpType::RC, QpType::UC, QpType::UD, QpType::XRC_RECV, QpType::XRC_SEND}) {
    add_line(type);
  }
  lend(lent, pieces);
}

// The region under the windows reaches into the guards, which neither it nor they may give away.
void Victim::lend(std::size_t lent, std::span<const std::size_t> pieces) {
  window_at_ = reinterpret_cast<std::uint64_t>(arena_.at(lent));
  window_bytes_ = static_cast<std::uint32_t>(arena_.size(lent));
  const Result<MrInfo> under = adapter_->reg_mr(pd_, window_at_ - 48, window_bytes_ + 96,
                                                window_at_ - 48, kAccessLocalWrite | kAccessMwBind);
  must(under.status);
  under_ = under.value.lkey;
  keys_.push_back({under_, window_at_ - 48, window_bytes_ + 96});
  const auto take = [&](const Result<std::uint32_t>& handle, std::uint64_t at,
                        std::uint32_t bytes) {
    must(handle.status);
    keys_.push_back({handle.value, at, bytes});
    return Lent{handle.value, keys_.size() - 1};
  };
  window_1_ = take(adapter_->alloc_mw(pd_, MwType::TYPE_1), window_at_, window_bytes_);
  window_2_ = take(adapter_->alloc_mw(pd_, MwType::TYPE_2), window_at_, window_bytes_);
  const Result<MrInfo> mr = adapter_->alloc_mr(pd_, MrType::SG_GAPS, 4);
  must(mr.status);
  FastMapping mapping;
  std::uint32_t bytes = 0;
  for (const std::size_t piece : pieces) {
    mapping.ranges.emplace_back(reinterpret_cast<std::uint64_t>(arena_.at(piece)),
                                arena_.size(piece));
    bytes += static_cast<std::uint32_t>(arena_.size(piece));
  }
  mapping.iova = 0x7000000000;
  must(adapter_->map_mr_sg(mr.value.handle, mapping));
  pieces_ = take(mr.value.handle, 0x7000000000, bytes);
}

void Victim::post_key_work(const SendWr& wr, std::uint64_t now_ns) {
  const SendWr* list[] = {&wr};
  std::size_t posted = 0;
  static_cast<void>(adapter_->post_send(lines_.front().qpn, list, posted, now_ns));
}

// Binds, registers and invalidates, rightly and wrongly, on the reliable connection.
void Victim::change_keys(std::uint64_t now_ns) {
  constexpr std::uint32_t kRights = kAccessRemoteRead | kAccessRemoteWrite | kAccessRemoteAtomic;
  const auto tag = static_cast<std::uint32_t>(random_.below(256));
  const BindInfo bind{under_, window_at_, window_bytes_, kRights};
  SendWr wr;
  wr.send_flags = random_.below(2) == 0 ? kSendFence : 0u;
  switch (random_.below(6)) {
    case 0:
      static_cast<void>(
          adapter_->bind_mw(lines_.front().qpn, window_1_.handle, bind, 0, 0, now_ns));
      break;
    case 1:
    case 2:
      wr.opcode = WrOpcode::BIND_MW;
      wr.memory = {window_2_.handle, (window_2_.handle & ~0xffu) | tag, MwType::TYPE_2, bind};
      post_key_work(wr, now_ns);
      break;
    case 3:
      wr.opcode = WrOpcode::REG_MR;
      wr.memory = {pieces_.handle, (pieces_.handle & ~0xffu) | tag, MwType::TYPE_2, {}};
      wr.memory.bind.access = kRights | kAccessLocalWrite | kAccessFlushGlobal;
      post_key_work(wr, now_ns);
      break;
    default: {
      const Lent& lent = random_.below(2) == 0 ? window_2_ : pieces_;
      wr.opcode = WrOpcode::LOCAL_INV;
      wr.invalidate_rkey = keys_[lent.key].rkey;
      if (random_.below(8) == 0) {
        wr.invalidate_rkey = keys_[random_.below(keys_.size())].rkey;
      }
      post_key_work(wr, now_ns);
      break;
    }
  }
  // Now and then the fuzzer goes on with a key that is stale.
  for (const Lent& lent : {window_1_, window_2_, pieces_}) {
    if (random_.below(8) != 0) {
      keys_[lent.key].rkey = adapter_->query_key(lent.handle).value.key;
    }
  }
}

void Victim::add_line(QpType type) {
  QpInit init;
  init.type = type;
  init.pd = pd_;
  init.send_cq = init.recv_cq = cq_;
  init.xrcd = xrcd_;
  init.cap = {16, 16, 2, 2, 0};
  Result<std::uint32_t> qpn = adapter_->create_qp(init);
  must(qpn.status);
  lines_.push_back({type, qpn.value, 0x1234});
  connect(lines_.back(), 0);
}

void Victim::connect(const Line& line, std::uint64_t now_ns) {
  const bool ud = line.type == QpType::UD;
  const bool answers = line.type == QpType::RC || line.type == QpType::XRC_RECV;
  const bool asks = line.type == QpType::RC || line.type == QpType::XRC_SEND;
  QpAttr attr;
  attr.qp_access_flags =
      kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic | kAccessFlushGlobal;
  attr.qkey = 0x11111111;
  attr.path_mtu = kPathMtuCode;
  attr.dest_qp_num = line.peer_qpn;
  attr.rq_psn = static_cast<std::uint32_t>(random_.next()) & 0xffffff;
  attr.sq_psn = static_cast<std::uint32_t>(random_.next()) & 0xffffff;
  attr.ah_attr.dgid = peer_gid_;
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 3;
  attr.min_rnr_timer = 1;
  attr.timeout = 8;
  attr.retry_cnt = 3;
  attr.rnr_retry = 3;
  attr.qp_state = QpState::RESET;
  must(adapter_->modify_qp(line.qpn, attr, kQpState, now_ns));
  attr.qp_state = QpState::INIT;
  must(adapter_->modify_qp(
      line.qpn, attr, kQpState | kQpPkeyIndex | kQpPort | (ud ? kQpQkey : kQpAccessFlags), now_ns));
  attr.qp_state = QpState::RTR;
  std::uint32_t mask = kQpState | (ud ? 0u : kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn);
  mask |= answers ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0;
  must(adapter_->modify_qp(line.qpn, attr, mask, now_ns));
  attr.qp_state = QpState::RTS;
  mask = kQpState | kQpSqPsn;
  mask |= asks ? kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic : 0;
  mask |= line.type == QpType::XRC_RECV ? std::uint32_t{kQpTimeout} : 0;
  must(adapter_->modify_qp(line.qpn, attr, mask, now_ns));
}

QpAttr Victim::attributes(const Line& line) const {
  QpInit init;
  return adapter_->query_qp(line.qpn, init).value;
}

void Victim::post_receives(const Line& line, std::uint64_t now_ns) {
  if (line.type == QpType::XRC_SEND) {
    return;
  }
  const auto base = reinterpret_cast<std::uint64_t>(arena_.at(receiving_));
  RecvWr wr;
  wr.sges = {
      {base + random_.below(4096), static_cast<std::uint32_t>(random_.below(1200)), receiving_key_},
      {base + 5000 + random_.below(1000), static_cast<std::uint32_t>(random_.below(2000)),
       receiving_key_}};
  if (random_.below(64) == 0) {
    wr.sges[1].lkey = keys_[random_.below(keys_.size())].rkey;
  }
  const RecvWr* list[] = {&wr};
  std::size_t posted = 0;
  const bool shared = line.type == QpType::XRC_RECV;
  for (bool more = true; more;) {
    more = shared ? adapter_->post_srq_recv(xrc_srq_, list, posted, now_ns).ok()
                  : adapter_->post_recv(line.qpn, list, posted, now_ns).ok();
  }
}

void Victim::post_requests(const Line& line, std::uint64_t now_ns) {
  if (line.type != QpType::RC && line.type != QpType::XRC_SEND) {
    return;
  }
  static constexpr WrOpcode kOpcodes[] = {WrOpcode::SEND,
                                          WrOpcode::RDMA_WRITE,
                                          WrOpcode::RDMA_READ,
                                          WrOpcode::ATOMIC_FETCH_AND_ADD,
                                          WrOpcode::ATOMIC_CMP_AND_SWP,
                                          WrOpcode::RDMA_WRITE_WITH_IMM,
                                          WrOpcode::SEND_WITH_INV,
                                          WrOpcode::MASKED_ATOMIC_CMP_AND_SWP,
                                          WrOpcode::MASKED_ATOMIC_FETCH_AND_ADD,
                                          WrOpcode::FLUSH,
                                          WrOpcode::ATOMIC_WRITE};
  SendWr wr;
  wr.opcode = kOpcodes[random_.below(std::size(kOpcodes))];
  wr.send_flags = kSendSignaled;
  wr.xrc_srqn = 1;
  const bool lands = wr.opcode == WrOpcode::RDMA_READ ||
                     wr.opcode == WrOpcode::ATOMIC_FETCH_AND_ADD ||
                     wr.opcode == WrOpcode::ATOMIC_CMP_AND_SWP ||
                     wr.opcode == WrOpcode::MASKED_ATOMIC_CMP_AND_SWP ||
                     wr.opcode == WrOpcode::MASKED_ATOMIC_FETCH_AND_ADD;
  const std::size_t area = lands ? landing_ : sending_;
  wr.sges = {{reinterpret_cast<std::uint64_t>(arena_.at(area)) + random_.below(2048),
              static_cast<std::uint32_t>(8 + random_.below(2000)),
              lands ? landing_key_ : sending_key_}};
  if (wr.opcode == WrOpcode::FLUSH) {
    wr.sges.clear();
    wr.flush = {64, 1, 0};
  } else if (wr.opcode == WrOpcode::ATOMIC_WRITE) {
    wr.sges[0].length = 8;
  }
  const SendWr* list[] = {&wr};
  std::size_t posted = 0;
  // A full send queue is nothing to complain about here.
  static_cast<void>(adapter_->post_send(line.qpn, list, posted, now_ns));
}

unsigned Victim::refresh(std::uint64_t now_ns) {
  unsigned in_error = 0;
  std::array<Completion, 64> completions;
  while (adapter_->poll_cq(cq_, completions).value != 0) {
  }
  AsyncEvent event;
  while (adapter_->next_event(event)) {
  }
  for (const Line& line : lines_) {
    const QpState state = attributes(line).qp_state;
    if (state == QpState::ERR || state == QpState::SQE) {
      ++in_error;
      connect(line, now_ns);
    }
    if (random_.below(3) != 0) {
      post_receives(line, now_ns);
    }
    post_requests(line, now_ns);
  }
  change_keys(now_ns);
  return in_error;
}

}  // namespace softhca::fuzz
