#include "bindings/completions.hpp"

#include <nanobind/typing.h>

#include <algorithm>
#include <array>

#include "bindings/module.hpp"
#include "bindings/refusal.hpp"

namespace softhca {

nb::object completion_object(nb::handle cls, const Completion& completion, nb::handle cqe) {
  nb::object out = nb::inst_alloc(cls);
  auto* polled = new (nb::inst_ptr<PolledCompletion>(out)) PolledCompletion(completion);
  if (cqe.is_valid()) polled->callback = nb::borrow(cqe);
  nb::inst_mark_ready(out);
  return out;
}

namespace {

// Completions that one lock takes; more than most callers ask for.
constexpr std::size_t kPollBatch = 64;

// A callback that keeps its completion makes a cycle, which the garbage collector must see.
int traverse_completion(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PolledCompletion>(self)->callback.ptr());
  return 0;
}

int clear_completion(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PolledCompletion>(self)->callback.reset();
  return 0;
}

PyType_Slot completion_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_completion)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_completion)},
    {0, nullptr},
};

nb::list poll(Hca& hca, std::uint32_t cq, std::uint64_t max_entries, nb::type_object cls,
              std::uint64_t patience_ns) {
  nb::list out;
  std::array<Completion, kPollBatch> batch;
  while (out.size() < max_entries) {
    const std::size_t wanted = std::min<std::size_t>(kPollBatch, max_entries - out.size());
    const std::size_t count =
        demand(hca.poll(cq, {batch.data(), wanted}, out.size() == 0 ? patience_ns : 0));
    for (std::size_t i = 0; i < count; ++i) {
      const Completion& completion = batch[i];
      CqeTable::Posted posted;
      if (completion.cqe != 0) {
        posted = hca.cqes.take(completion.cqe, completion.status == WcStatus::SUCCESS);
      }
      out.append(completion_object(cls, completion, posted.cqe));
    }
    if (count < wanted) break;
  }
  return out;
}

void bind_completion(nb::module_& module) {
  nb::class_<PolledCompletion>(module, "Completion", nb::type_slots(completion_slots),
                               "One entry of a completion queue; immutable.")
      .def_ro("wr_id", &Completion::wr_id)
      .def_prop_ro(
          "cqe", [](const PolledCompletion& c) { return c.callback; },
          nb::sig("def cqe(self) -> typing.Any"))
      .def_ro("status", &Completion::status)
      .def_ro("opcode", &Completion::opcode)
      .def_ro("sl", &Completion::sl)
      .def_ro("port", &Completion::port)
      .def_prop_ro("wc_flags",
                   [](const PolledCompletion& c) { return static_cast<WcFlags>(c.wc_flags); })
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

nb::list cqes_of(std::vector<CqeTable::Posted> taken) {
  nb::list out;
  for (const CqeTable::Posted& posted : taken) out.append(posted.cqe);
  return out;
}

// Callbacks of work requests that a queue pair in RESET has forgotten; those whose completions wait
// in one of the CQs are still to come.
nb::list take_forgotten(Hca& hca, std::uint32_t qpn, const std::vector<std::uint32_t>& cqs) {
  std::vector<std::uint64_t> waiting;
  for (const std::uint32_t cq : cqs) {
    const auto found =
        demand(hca.call([&](Adapter& adapter) { return adapter.waiting_cqes(cq, qpn); }));
    waiting.insert(waiting.end(), found.begin(), found.end());
  }
  std::vector<CqeTable::Posted> taken;
  for (const auto kind : {PostedTo::Kind::SEND, PostedTo::Kind::RECEIVE}) {
    for (const std::uint64_t number : hca.cqes.numbers({kind, qpn})) {
      if (std::ranges::find(waiting, number) == waiting.end()) {
        taken.push_back(hca.cqes.take(number, false));
      }
    }
  }
  return cqes_of(std::move(taken));
}

}  // namespace

void bind_completions(nb::module_& module, HcaClass& hca) {
  bind_completion(module);
  module.attr("C") = nb::type_var("C", nb::arg("bound") = nb::type<PolledCompletion>());
  hca.def("poll_cq", &poll, nb::arg("cq"), nb::arg("max_entries"), nb::arg("cls"),
          nb::arg("patience_ns") = 0,
          nb::sig("def poll_cq(self, cq: int, max_entries: int, cls: type[C], "
                  "patience_ns: int = 0) -> list[C]"))
      .def(
          "take_cqes_of_qp",
          [](Hca& self, std::uint32_t qpn) {
            nb::list out = cqes_of(self.cqes.take_all({PostedTo::Kind::SEND, qpn}));
            out.extend(cqes_of(self.cqes.take_all({PostedTo::Kind::RECEIVE, qpn})));
            return out;
          },
          nb::arg("qpn"), "Callbacks of a queue pair that was destroyed.",
          nb::sig("def take_cqes_of_qp(self, qpn: int) -> list[typing.Any]"))
      .def(
          "take_cqes_of_srq",
          [](Hca& self, std::uint32_t srq) {
            return cqes_of(self.cqes.take_all({PostedTo::Kind::SHARED, srq}));
          },
          nb::arg("srq"), nb::sig("def take_cqes_of_srq(self, srq: int) -> list[typing.Any]"))
      .def("take_forgotten_cqes", &take_forgotten, nb::arg("qpn"), nb::arg("cqs"),
           nb::sig("def take_forgotten_cqes(self, qpn: int, cqs: Sequence[int]) -> "
                   "list[typing.Any]"))
      .def(
          "take_all_cqes", [](Hca& self) { return cqes_of(self.cqes.take_everything()); },
          "Callbacks of a device that was closed.",
          nb::sig("def take_all_cqes(self) -> list[typing.Any]"));
}

}  // namespace softhca
