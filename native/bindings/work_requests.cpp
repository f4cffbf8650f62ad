// The constructors of work requests.

#include <utility>

#include "bindings/module.hpp"
#include "bindings/request_types.hpp"

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

// What keeps the bytes of the entries valid.
using KeptBuffers = nb::typed<nb::tuple, nb::object, nb::ellipsis>;

// Null for None.
PyObject* kept_reference(nb::handle object) {
  return object.is_none() ? nullptr : Py_NewRef(object.ptr());
}

// Puts a work request, and what it keeps, into an instance that has none yet.
template <class Wr>
void make(nb::handle self, Wr&& wr, KeptBuffers kept, nb::handle cqe, nb::handle ah) {
  if (PyObject_TypeCheck(self.ptr(), request_type<Wr>) == 0) {
    throw nb::type_error("self is no work request of this kind");
  }
  auto& request = RequestObject<Wr>::of(self.ptr());
  if (request.making != Making::EMPTY) throw nb::type_error("a work request is made once");
  request.wr = std::move(wr);
  request.wr.has_cqe = !cqe.is_none();
  request.kept = kept_reference(kept);
  request.cqe = kept_reference(cqe);
  request.ah = kept_reference(ah);
  request.making = Making::CONSTRUCTED;
}

void bind_send_wr(nb::module_& module) {
  const nb::object cls = module.attr("SendWr");
  cls.attr("__init__") = nb::cpp_function(
      [](nb::handle self, WrOpcode opcode, const std::vector<SgeTuple>& sges, std::uint64_t wr_id,
         std::uint32_t send_flags, std::uint32_t immediate, std::uint32_t invalidate_rkey,
         std::uint64_t remote_address, std::uint32_t rkey, std::uint64_t compare_add,
         std::uint64_t swap, std::uint32_t ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey,
         std::uint32_t xrc_srqn, const MemoryTuple& memory, std::uint64_t compare_mask,
         std::uint64_t swap_mask, const FlushTuple& flush, KeptBuffers kept, nb::handle cqe,
         nb::handle ah_object) {
        make(self,
             SendWr{.wr_id = wr_id,
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
                    .sges = sges_of(sges)},
             std::move(kept), cqe, ah_object);
      },
      nb::is_method(), nb::name("__init__"), nb::scope(cls), nb::arg("opcode"), nb::arg("sges"),
      nb::kw_only(), nb::arg("wr_id") = 0, nb::arg("send_flags") = 0, nb::arg("immediate") = 0,
      nb::arg("invalidate_rkey") = 0, nb::arg("remote_address") = 0, nb::arg("rkey") = 0,
      nb::arg("compare_add") = 0, nb::arg("swap") = 0, nb::arg("ah") = 0, nb::arg("remote_qpn") = 0,
      nb::arg("remote_qkey") = 0, nb::arg("xrc_srqn") = 0, nb::arg("memory") = MemoryTuple(),
      nb::arg("compare_mask") = 0, nb::arg("swap_mask") = 0, nb::arg("flush") = FlushTuple(),
      nb::arg("kept") = nb::tuple(), nb::arg("cqe") = nb::none(),
      nb::arg("ah_object") = nb::none());
}

void bind_recv_wr(nb::module_& module) {
  const nb::object cls = module.attr("RecvWr");
  cls.attr("__init__") = nb::cpp_function(
      [](nb::handle self, const std::vector<SgeTuple>& sges, std::uint64_t wr_id, KeptBuffers kept,
         nb::handle cqe) {
        make(self, RecvWr{.wr_id = wr_id, .sges = sges_of(sges)}, std::move(kept), cqe, nb::none());
      },
      nb::is_method(), nb::name("__init__"), nb::scope(cls), nb::arg("sges"), nb::kw_only(),
      nb::arg("wr_id") = 0, nb::arg("kept") = nb::tuple(), nb::arg("cqe") = nb::none());
}

}  // namespace

void bind_work_requests(nb::module_& module) {
  bind_request_types(module);
  bind_send_wr(module);
  bind_recv_wr(module);
}

}  // namespace softhca
