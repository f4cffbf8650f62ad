#include <utility>

#include "bindings/module.hpp"
#include "queue/work_request.hpp"

namespace softhca {
namespace {

// (address, length, lkey), as `Sge` of the Python API unpacks.
using SgeTuple = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>;

std::vector<Sge> sges_of(const std::vector<SgeTuple>& tuples) {
  std::vector<Sge> sges;
  sges.reserve(tuples.size());
  for (const auto& [address, length, lkey] : tuples) sges.push_back({address, length, lkey});
  return sges;
}

// Object, key, what it is bound to (lkey, address, length, access), and whose it is.
using MemoryTuple = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t,
                               std::uint64_t, std::uint32_t, std::uint64_t>;

// Bytes, placement type, selectivity.
using FlushTuple = std::tuple<std::uint32_t, std::uint8_t, std::uint8_t>;

FlushWork flush_work(const FlushTuple& tuple) {
  const auto& [length, placement_type, selectivity] = tuple;
  return {length, placement_type, selectivity};
}

MemoryWork memory_work(const MemoryTuple& tuple) {
  const auto& [object, key, lkey, address, length, access, owner] = tuple;
  return {object, key, MwType::TYPE_2, {lkey, address, length, access}, owner};
}

void bind_send_wr(nb::module_& module) {
  nb::class_<SendWr>(module, "SendWr", "A work request for a send queue; immutable.")
      .def(
          "__init__",
          [](SendWr* self, WrOpcode opcode, const std::vector<SgeTuple>& sges, std::uint64_t wr_id,
             std::uint32_t send_flags, std::uint32_t immediate, std::uint32_t invalidate_rkey,
             std::uint64_t remote_address, std::uint32_t rkey, std::uint64_t compare_add,
             std::uint64_t swap, std::uint32_t ah, std::uint32_t remote_qpn,
             std::uint32_t remote_qkey, std::uint32_t xrc_srqn, bool has_cqe,
             const MemoryTuple& memory, std::uint64_t compare_mask, std::uint64_t swap_mask,
             const FlushTuple& flush) {
            new (self) SendWr{.wr_id = wr_id,
                              .has_cqe = has_cqe,
                              .opcode = opcode,
                              .send_flags = send_flags,
                              .immediate = immediate,
                              .invalidate_rkey = invalidate_rkey,
                              .remote_address = remote_address,
                              .rkey = rkey,
                              .compare_add = compare_add,
                              .swap = swap,
                              .compare_mask = compare_mask,
                              .swap_mask = swap_mask,
                              .flush = flush_work(flush),
                              .ah = ah,
                              .remote_qpn = remote_qpn,
                              .remote_qkey = remote_qkey,
                              .xrc_srqn = xrc_srqn,
                              .memory = memory_work(memory),
                              .sges = sges_of(sges)};
          },
          nb::arg("opcode"), nb::arg("sges"), nb::kw_only(), nb::arg("wr_id") = 0,
          nb::arg("send_flags") = 0, nb::arg("immediate") = 0, nb::arg("invalidate_rkey") = 0,
          nb::arg("remote_address") = 0, nb::arg("rkey") = 0, nb::arg("compare_add") = 0,
          nb::arg("swap") = 0, nb::arg("ah") = 0, nb::arg("remote_qpn") = 0,
          nb::arg("remote_qkey") = 0, nb::arg("xrc_srqn") = 0, nb::arg("has_cqe") = false,
          nb::arg("memory") = MemoryTuple(), nb::arg("compare_mask") = 0, nb::arg("swap_mask") = 0,
          nb::arg("flush") = FlushTuple())
      .def_ro("wr_id", &SendWr::wr_id)
      .def_ro("opcode", &SendWr::opcode)
      .def_prop_ro("send_flags",
                   [](const SendWr& wr) { return static_cast<SendFlags>(wr.send_flags); })
      .def_ro("immediate", &SendWr::immediate)
      .def_ro("invalidate_rkey", &SendWr::invalidate_rkey)
      .def_ro("remote_address", &SendWr::remote_address)
      .def_ro("rkey", &SendWr::rkey)
      .def_ro("compare_add", &SendWr::compare_add)
      .def_ro("swap", &SendWr::swap)
      .def_ro("remote_qpn", &SendWr::remote_qpn)
      .def_ro("remote_qkey", &SendWr::remote_qkey)
      .def_ro("xrc_srqn", &SendWr::xrc_srqn);
}

}  // namespace

void bind_work_requests(nb::module_& module) {
  bind_send_wr(module);
  nb::class_<RecvWr>(module, "RecvWr", "A work request for a receive queue; immutable.")
      .def(
          "__init__",
          [](RecvWr* self, const std::vector<SgeTuple>& sges, std::uint64_t wr_id, bool has_cqe) {
            new (self) RecvWr{.wr_id = wr_id, .has_cqe = has_cqe, .sges = sges_of(sges)};
          },
          nb::arg("sges"), nb::kw_only(), nb::arg("wr_id") = 0, nb::arg("has_cqe") = false)
      .def_ro("wr_id", &RecvWr::wr_id);
}

}  // namespace softhca
