#include <nanobind/typing.h>

#include <algorithm>
#include <array>

#include "bindings/module.hpp"
#include "bindings/refusal.hpp"

namespace softhca {
namespace {

// Completions that one lock takes; more than most callers ask for.
constexpr std::size_t kPollBatch = 64;

// The completion as an instance of `cls`, which is the bound class or a subclass of it.
nb::object completion_object(nb::handle cls, const Completion& completion) {
  nb::object out = nb::inst_alloc(cls);
  new (nb::inst_ptr<Completion>(out)) Completion(completion);
  nb::inst_mark_ready(out);
  return out;
}

nb::list poll(Hca& hca, std::uint32_t cq, std::uint64_t max_entries, nb::type_object cls) {
  nb::list out;
  std::array<Completion, kPollBatch> batch;
  while (out.size() < max_entries) {
    const std::size_t wanted = std::min<std::size_t>(kPollBatch, max_entries - out.size());
    const std::size_t count = demand(hca.poll(cq, {batch.data(), wanted}));
    for (std::size_t i = 0; i < count; ++i) out.append(completion_object(cls, batch[i]));
    if (count < wanted) break;
  }
  return out;
}

void bind_completion(nb::module_& module) {
  nb::class_<Completion>(module, "Completion", "One entry of a completion queue; immutable.")
      .def_ro("wr_id", &Completion::wr_id)
      .def_ro("status", &Completion::status)
      .def_ro("opcode", &Completion::opcode)
      .def_ro("sl", &Completion::sl)
      .def_ro("port", &Completion::port)
      .def_prop_ro("wc_flags", [](const Completion& c) { return static_cast<WcFlags>(c.wc_flags); })
      .def_ro("byte_len", &Completion::byte_len)
      .def_ro("immediate_or_rkey", &Completion::immediate_or_rkey)
      .def_ro("qp_num", &Completion::qpn)
      .def_ro("src_qp", &Completion::source_qpn)
      .def_ro("pkey_index", &Completion::pkey_index)
      .def_ro("is_receive", &Completion::is_receive)
      .def_ro("solicited", &Completion::solicited)
      .def_ro("reason", &Completion::reason)
      .def_ro("by_peer", &Completion::by_peer)
      .def_ro("psn", &Completion::psn)
      .def_ro("key", &Completion::key)
      .def_ro("address", &Completion::address)
      .def_ro("length", &Completion::length)
      .def_ro("timestamp_ns", &Completion::timestamp_ns);
}

}  // namespace

void bind_completions(nb::module_& module, HcaClass& hca) {
  bind_completion(module);
  module.attr("C") = nb::type_var("C", nb::arg("bound") = nb::type<Completion>());
  hca.def("poll_cq", &poll, nb::arg("cq"), nb::arg("max_entries"), nb::arg("cls"),
          nb::sig("def poll_cq(self, cq: int, max_entries: int, cls: type[C]) -> list[C]"));
}

}  // namespace softhca
