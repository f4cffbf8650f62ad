#include "bindings/polling.hpp"

#include <nanobind/typing.h>

#include <algorithm>

#include "bindings/module.hpp"

namespace softhca {

bool AwaitedByTasks::take_awaited(const Completion& completion, CqeTable::Posted& posted) {
  Kept wc = completion_object(wc_class_, completion, posted.cqe);
  taken_.push_back({std::move(posted), std::move(wc)});
  return true;
}

void AwaitedByTasks::hand_over_taken() {
  static PyObject* const done = PyUnicode_InternFromString("done");
  for (const Taken& one : taken_) {
    if (!one.wc.is_valid()) continue;
    // A task asks for no queue.
    if (!call_method(done, one.posted.cqe, nb::handle(Py_None), one.wc).is_valid()) {
      report_unraisable(one.posted.cqe);
    }
  }
}

void AwaitedByTasks::name(nb::handle cqe_class, nb::handle wc_class) {
  // For the life of the process.
  cqe_type_ = reinterpret_cast<PyTypeObject*>(nb::borrow(cqe_class).release().ptr());
  wc_class_ = nb::borrow(wc_class).release().ptr();
}

nb::list poll_list(Hca& hca, std::uint32_t cq, std::uint64_t max_entries, nb::handle cls,
                   std::uint64_t patience_ns, bool progress, bool for_tasks) {
  nb::list out;
  AwaitedByTasks awaited(for_tasks);
  poll_each(hca, cq, max_entries, patience_ns, progress, [&](const Completion& completion) {
    CqeTable::Posted posted;
    if (!take_cqe(hca, completion, posted, awaited)) return false;
    out.append(completion_object(cls, completion, posted.cqe));
    return true;
  });
  awaited.hand_over();
  return out;
}

nb::object poll_one(Hca& hca, std::uint32_t cq, nb::handle cls) {
  nb::object out = nb::none();
  AwaitedByTasks awaited;
  poll_each(hca, cq, 1, 0, true, [&](const Completion& completion) {
    CqeTable::Posted posted;
    if (!take_cqe(hca, completion, posted, awaited)) return false;
    out = completion_object(cls, completion, posted.cqe);
    return true;
  });
  awaited.hand_over();
  return out;
}

std::size_t poll_records(Hca& hca, std::uint32_t cq, char* records, std::size_t room) {
  AwaitedByTasks awaited;
  CompletionRecord* at = records_at(records);
  const std::size_t count = poll_each(hca, cq, room, 0, true, [&](const Completion& completion) {
    if (completion.cqe != 0) {
      CqeTable::Posted posted;
      if (!take_cqe(hca, completion, posted, awaited)) return false;
      awaited.let_go_later(std::move(posted));
    }
    write_record(completion, *at++);
    return true;
  });
  awaited.hand_over();
  return count;
}

CompletionRecords::CompletionRecords(nb::handle buffer) {
  if (PyObject_GetBuffer(buffer.ptr(), &buffer_, PyBUF_WRITABLE) != 0) throw nb::python_error();
  data_ = static_cast<char*>(buffer_.buf);
  room_ = static_cast<std::size_t>(buffer_.len) / sizeof(CompletionRecord);
}

CompletionRecords::~CompletionRecords() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

namespace {

// The records as bytes, for who reads them with NumPy or struct.
int export_records(PyObject* self, Py_buffer* view, int flags) {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError, "was never constructed");
    return -1;
  }
  auto* records = nb::inst_ptr<CompletionRecords>(self);
  return PyBuffer_FillInfo(view, self, records->data(),
                           static_cast<Py_ssize_t>(records->room() * sizeof(CompletionRecord)), 0,
                           flags);
}

PyType_Slot records_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(export_records)},
    {0, nullptr},
};

std::size_t checked(const CompletionRecords& records, std::uint64_t count) {
  if (count > records.room()) {
    demand(refuse(EINVAL, "count", count, "is above the room for completions"));
  }
  return count;
}

std::size_t checked_index(const CompletionRecords& records, std::uint64_t index) {
  if (index >= records.room()) {
    demand(refuse(EINVAL, "index", index, "is beyond the room for completions"));
  }
  return index;
}

void bind_records(nb::module_& module) {
  nb::class_<CompletionRecords>(module, "CompletionRecords", nb::type_slots(records_slots),
                                "Room for completions as records.")
      .def(nb::init<std::size_t>(), nb::arg("room"))
      .def(
          "__init__",
          [](CompletionRecords* self, nb::handle buffer) { new (self) CompletionRecords(buffer); },
          nb::arg("buffer"), nb::sig("def __init__(self, buffer: memoryview) -> None"))
      .def("__len__", &CompletionRecords::room)
      .def(
          "completion",
          [](const CompletionRecords& self, std::uint64_t index, nb::type_object cls) {
            return completion_object(cls, to_completion(self.at(checked_index(self, index))), {});
          },
          nb::arg("index"), nb::arg("cls"),
          nb::sig("def completion(self, index: int, cls: type[C]) -> C"))
      .def(
          "wr_ids",
          [](const CompletionRecords& self, std::uint64_t count) {
            nb::list out;
            for (std::size_t i = 0; i < checked(self, count); ++i) out.append(self.at(i).wr_id);
            return out;
          },
          nb::arg("count"), nb::sig("def wr_ids(self, count: int) -> list[int]"))
      .def(
          "first_error",
          [](const CompletionRecords& self, std::uint64_t count) -> std::int64_t {
            for (std::size_t i = 0; i < checked(self, count); ++i) {
              if (self.at(i).status != 0) return static_cast<std::int64_t>(i);
            }
            return -1;
          },
          nb::arg("count"), "Index of the first that did not succeed; -1 if all did.");
  module.def(
      "store_completion",
      [](nb::handle completion, CompletionRecords& into, std::uint64_t index) {
        const Completion* const found = find_completion(completion);
        if (found == nullptr) throw nb::type_error("completion must be a Completion");
        write_record(*found, records_at(into.data())[checked_index(into, index)]);
      },
      nb::arg("completion"), nb::arg("into"), nb::arg("index"),
      nb::sig("def store_completion(completion: Completion, into: CompletionRecords, "
              "index: int) -> None"));
}

}  // namespace

void bind_polling(nb::module_& module, HcaClass& hca) {
  module.attr("C") = nb::type_var("C", nb::arg("bound") = module.attr("Completion"));
  bind_records(module);
  module.def("name_awaited", &AwaitedByTasks::name, nb::arg("cqe_class"), nb::arg("wc_class"),
             nb::sig("def name_awaited(cqe_class: type, wc_class: type) -> None"),
             "Whoever polls, completions with such a callback go to the tasks that await them.");
  hca.def("poll_cq", &poll_list, nb::arg("cq"), nb::arg("max_entries"), nb::arg("cls"),
          nb::arg("patience_ns") = 0, nb::arg("progress") = true, nb::arg("for_tasks") = false,
          "Without those that tasks await, which go there, unless they are asked for.",
          nb::sig("def poll_cq(self, cq: int, max_entries: int, cls: type[C], "
                  "patience_ns: int = 0, progress: bool = True, for_tasks: bool = False) "
                  "-> list[C]"))
      .def("poll_one", &poll_one, nb::arg("cq"), nb::arg("cls"),
           nb::sig("def poll_one(self, cq: int, cls: type[C]) -> C | None"))
      .def(
          "poll_into",
          [](Hca& self, std::uint32_t cq, CompletionRecords& into) {
            return poll_records(self, cq, into.data(), into.room());
          },
          nb::arg("cq"), nb::arg("into"));
}

}  // namespace softhca
