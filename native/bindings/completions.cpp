#include "bindings/completions.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "bindings/module.hpp"
#include "bindings/refusal.hpp"

namespace softhca {

namespace {

int traverse_hca(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  return nb::inst_ptr<Hca>(self)->cqes.for_each_object(
      [&](nb::handle object) { return visit(object.ptr(), arg); });
}

int clear_hca(PyObject* self) {
  if (nb::inst_ready(self)) {
    const std::vector<CqeTable::Posted> dropped = nb::inst_ptr<Hca>(self)->cqes.take_everything();
  }
  return 0;
}

nb::list cqes_of(std::vector<CqeTable::Posted> taken) {
  nb::list out;
  for (const CqeTable::Posted& posted : taken) out.append(posted.cqe);
  return out;
}

void take_into(std::vector<CqeTable::Posted>& taken, Hca& hca, std::uint64_t number) {
  CqeTable::Posted posted = hca.cqes.take(number, false);
  if (posted.cqe.is_valid()) taken.push_back(std::move(posted));
}

// Destroys a queue pair and returns the callbacks of what vanished with it: all that it had posted,
// and receives of shared queues that it had taken.
nb::list destroy_qp(Hca& hca, std::uint32_t qpn) {
  std::vector<std::uint64_t> vanished;
  std::vector<std::uint64_t> polled;
  std::uint64_t gone_at = 0;
  demand(hca.call([&](Adapter& adapter) {
    gone_at = hca.posted_so_far;
    vanished = adapter.waiting_cqes(qpn);
    vanished.push_back(adapter.filling_cqe(qpn));
    hca.batches.collect_polled(qpn, polled);
    return adapter.destroy_qp(qpn);
  }));
  hca.batches.destroyed(qpn);
  std::ranges::sort(polled);
  std::vector<CqeTable::Posted> taken =
      hca.cqes.take_all({PostedTo::Kind::SEND, qpn}, gone_at, polled);
  std::ranges::move(hca.cqes.take_all({PostedTo::Kind::RECEIVE, qpn}, gone_at, polled),
                    std::back_inserter(taken));
  for (const std::uint64_t number : vanished) take_into(taken, hca, number);
  return cqes_of(std::move(taken));
}

// The receives of an XRC queue that have completed do so still: the targets that took them stay.
nb::list destroy_srq(Hca& hca, std::uint32_t srq) {
  std::uint64_t gone_at = 0;
  std::vector<std::uint64_t> completed;
  demand(hca.call([&](Adapter& adapter) {
    gone_at = hca.posted_so_far;
    completed = adapter.waiting_cqes_in(adapter.srq_cq(srq));
    hca.batches.collect_all(completed);
    return adapter.destroy_srq(srq);
  }));
  std::ranges::sort(completed);
  return cqes_of(hca.cqes.take_all({PostedTo::Kind::SHARED, srq}, gone_at, completed));
}

// What waits in a queue that nothing uses any more is of XRC queues that went before it.
nb::list destroy_cq(Hca& hca, std::uint32_t cq) {
  std::vector<std::uint64_t> vanished;
  demand(hca.call([&](Adapter& adapter) {
    vanished = adapter.waiting_cqes_in(cq);
    return adapter.destroy_cq(cq);
  }));
  std::vector<CqeTable::Posted> taken;
  for (const std::uint64_t number : vanished) take_into(taken, hca, number);
  return cqes_of(std::move(taken));
}

// Returns the callbacks of what a transition to RESET made vanish. Those of completions that wait,
// in a queue or for a thread that has polled them, are still to come.
nb::list modify_qp(Hca& hca, std::uint32_t qpn, const QpAttr& attr, std::uint32_t mask) {
  const bool resets = (mask & kQpState) != 0 && attr.qp_state == QpState::RESET;
  if ((mask & kQpAv) != 0) hca.meet(attr.ah_attr.dgid);
  std::uint64_t filling = 0;
  std::uint64_t gone_at = 0;
  std::vector<std::uint64_t> waiting;
  demand(hca.call([&](Adapter& adapter, std::uint64_t now_ns) {
    if (resets) filling = adapter.filling_cqe(qpn);
    const Status status = adapter.modify_qp(qpn, attr, mask, now_ns);
    gone_at = hca.posted_so_far;
    if (resets && status.ok()) {
      waiting = adapter.waiting_cqes(qpn);
      hca.batches.collect(qpn, waiting);
    }
    return status;
  }));
  if (!resets) return {};
  std::ranges::sort(waiting);
  std::vector<CqeTable::Posted> taken;
  for (const auto kind : {PostedTo::Kind::SEND, PostedTo::Kind::RECEIVE}) {
    for (const std::uint64_t number : hca.cqes.numbers({kind, qpn}, gone_at)) {
      if (!std::ranges::binary_search(waiting, number)) take_into(taken, hca, number);
    }
  }
  take_into(taken, hca, filling);
  return cqes_of(std::move(taken));
}

}  // namespace

PyType_Slot* hca_slots() {
  static PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(traverse_hca)},
      {Py_tp_clear, reinterpret_cast<void*>(clear_hca)},
      {0, nullptr},
  };
  return slots;
}

void tell_forgotten(nb::handle cqe) {
  static PyObject* const name = PyUnicode_InternFromString("forgotten");
  if (!call_method(name, cqe).is_valid()) report_unraisable(cqe);
}

void bind_completions(HcaClass& hca) {
  hca.def("destroy_qp", &destroy_qp, nb::arg("qpn"), "Returns callbacks that will never run.",
          nb::sig("def destroy_qp(self, qpn: int) -> list[typing.Any]"))
      .def("modify_qp", &modify_qp, nb::arg("qpn"), nb::arg("attr"), nb::arg("mask"),
           "Returns callbacks that will never run; of RESET.",
           nb::sig("def modify_qp(self, qpn: int, attr: QpAttr, mask: int) -> list[typing.Any]"))
      .def("destroy_srq", &destroy_srq, nb::arg("srq"), "Returns callbacks that will never run.",
           nb::sig("def destroy_srq(self, srq: int) -> list[typing.Any]"))
      .def("destroy_cq", &destroy_cq, nb::arg("cq"), "Returns callbacks that will never run.",
           nb::sig("def destroy_cq(self, cq: int) -> list[typing.Any]"))
      .def_prop_ro(
          "cqes_under_way", [](const Hca& self) { return self.cqes.size(); },
          "Posted work requests with a callback that has not run.")
      .def(
          "take_all_cqes", [](Hca& self) { return cqes_of(self.cqes.take_everything()); },
          "Callbacks of a device that was closed.",
          nb::sig("def take_all_cqes(self) -> list[typing.Any]"));
}

}  // namespace softhca
