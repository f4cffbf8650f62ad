// Methods of Python classes that programs call for each message, without Python code on the way.
//
// quicken(QP, "post_send") puts a method descriptor in the place of the Python function. It knows
// the ordinary call: by position, on an open object of a device that keeps real time, with what the
// function documents. It does what the function would do. Whatever else it meets it leaves to the
// function, which remains the definition of the method: for closed objects, simulations, keywords,
// and arguments that are refused.

#include <algorithm>
#include <array>
#include <string>

#include "bindings/exact_integers.hpp"
#include "bindings/module.hpp"
#include "bindings/polling.hpp"
#include "bindings/post.hpp"
#include "bindings/slots.hpp"

namespace softhca {
namespace {

struct Arguments {
  PyObject* const* list;
  Py_ssize_t count;
};

// One quickened method: where its instances keep what it needs, and what it falls back on.
struct QuickMethod {
  Slot hca;
  Slot number;      // Of the queue pair or queue within its device.
  Slot dispatcher;  // CQ: who hands completions to tasks, or None.
  PyObject* function = nullptr;
  PyObject* wc_class = nullptr;
  std::string doc;
  PyMethodDef definition{};
};

// The class of devices; null until it is bound.
PyTypeObject* hca_type = nullptr;

// The device of an open object that keeps real time; null otherwise. A simulated one may have verbs
// replaced by those who test with it.
Hca* device_of(const QuickMethod& method, PyObject* self) {
  PyObject* const object = method.hca.of(self);
  if (object == nullptr || Py_TYPE(object) != hca_type) return nullptr;
  Hca* const hca = nb::inst_ptr<Hca>(object);
  return hca->is_simulated() ? nullptr : hca;
}

std::uint32_t number_of(const QuickMethod& method, PyObject* self) {
  std::uint64_t number = 0;
  exact_unsigned(method.number.of(self), number);
  return static_cast<std::uint32_t>(number);
}

// What the Python function returns; it may lose the GIL for good (gil.hpp).
PyObject* call_function(const QuickMethod& method, PyObject* self, PyObject* const* list,
                        Py_ssize_t count, PyObject* names) {
  constexpr Py_ssize_t kMost = 8;
  const Py_ssize_t total = count + (names == nullptr ? 0 : PyTuple_GET_SIZE(names));
  if (total >= kMost) {
    PyErr_Format(PyExc_TypeError, "%s() got too many arguments", method.definition.ml_name);
    return nullptr;
  }
  std::array<PyObject*, kMost> with_self{self};
  std::copy_n(list, total, with_self.begin() + 1);
  return or_rest([&] {
    return PyObject_Vectorcall(method.function, with_self.data(),
                               static_cast<std::size_t>(count + 1), names);
  });
}

// `quick(method, hca, self, arguments)` returns a reference, or null to leave it to the function.
// What it throws becomes a Python error.
template <auto quick>
PyObject* run(const QuickMethod& method, PyObject* self, PyObject* const* list, Py_ssize_t count,
              PyObject* names) {
  if (Hca* const hca = names == nullptr ? device_of(method, self) : nullptr; hca != nullptr) {
    // Closing the object in another thread must not take the device away from under us.
    const nb::object kept = nb::borrow(method.hca.of(self));
    try {
      if (PyObject* const result = quick(method, *hca, self, Arguments{list, count})) return result;
    } catch (nb::python_error& error) {
      error.restore();
      return nullptr;
    } catch (const nb::builtin_exception& error) {
      PyErr_SetString(PyExc_TypeError, error.what());
      return nullptr;
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      return nullptr;
    }
  }
  return call_function(method, self, list, count, names);
}

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

// --- the methods
// ----------------------------------------------------------------------------------------------------------

template <class Wr, PostedTo::Kind kind>
PyObject* quick_post(const QuickMethod& method, Hca& hca, PyObject* self, Arguments arguments) {
  if (arguments.count != 1) return nullptr;
  const nb::handle object = arguments.list[0];
  const Wr* const wr = find_work_request<Wr>(object);
  if (wr == nullptr) return nullptr;
  // Whose address handle it is, the function finds out.
  if constexpr (std::is_same_v<Wr, SendWr>) {
    if (wr->ah != 0) return nullptr;
  }
  const Status status = post_one(hca, object, wr, {kind, number_of(method, self)});
  if (!status.ok()) raise_refusal(status, object);
  return none();
}

bool has_tasks(const QuickMethod& method, PyObject* self) {
  return method.dispatcher.of(self) != Py_None;
}

PyObject* quick_poll(const QuickMethod& method, Hca& hca, PyObject* self, Arguments arguments) {
  constexpr std::uint64_t kDefaultEntries = 16;
  std::uint64_t max_entries = kDefaultEntries;
  if (arguments.count > 1 || has_tasks(method, self)) return nullptr;
  if (arguments.count == 1) {
    // What is out of range the function refuses by name.
    if (!exact_unsigned(arguments.list[0], max_entries)) return nullptr;
  }
  return poll_list(hca, number_of(method, self), max_entries, method.wc_class).release().ptr();
}

PyObject* quick_poll_one(const QuickMethod& method, Hca& hca, PyObject* self, Arguments arguments) {
  if (arguments.count != 0 || has_tasks(method, self)) return nullptr;
  return poll_one(hca, number_of(method, self), method.wc_class).release().ptr();
}

PyObject* quick_poll_into(const QuickMethod& method, Hca& hca, PyObject* self,
                          Arguments arguments) {
  static auto* const type = reinterpret_cast<PyTypeObject*>(nb::type<CompletionRecords>().ptr());
  if (arguments.count != 1 || has_tasks(method, self)) return nullptr;
  const nb::handle object = arguments.list[0];
  if (PyType_IsSubtype(Py_TYPE(object.ptr()), type) == 0 || !nb::inst_ready(object)) return nullptr;
  auto* const into = nb::inst_ptr<CompletionRecords>(object);
  return PyLong_FromSize_t(poll_records(hca, number_of(method, self), into->data(), into->room()));
}

// --- which there are
// ----------------------------------------------------------------------------------------------------------

template <auto quick>
struct Entry {
  static inline QuickMethod method;
  static PyObject* call(PyObject* self, PyObject* const* list, Py_ssize_t count, PyObject* names) {
    return or_rest([&] { return run<quick>(method, self, list, count, names); });
  }
};

// What METH_FASTCALL and METH_KEYWORDS say; its name is not the same in all versions of Python.
using Call = PyObject*(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

struct Candidate {
  const char* cls;
  const char* name;
  const char* signature;
  const char* number;
  bool polls;
  QuickMethod& method;
  Call* call;
};

template <auto quick>
Candidate candidate(const char* cls, const char* name, const char* signature, const char* number,
                    bool polls = false) {
  return {cls, name, signature, number, polls, Entry<quick>::method, &Entry<quick>::call};
}

const Candidate kCandidates[] = {
    candidate<&quick_post<SendWr, PostedTo::Kind::SEND>>("QP", "post_send", "($self, wrs)", "_qpn"),
    candidate<&quick_post<RecvWr, PostedTo::Kind::RECEIVE>>("QP", "post_recv", "($self, wrs)",
                                                            "_qpn"),
    candidate<&quick_post<RecvWr, PostedTo::Kind::SHARED>>("SRQ", "post_recv", "($self, wrs)",
                                                           "handle"),
    candidate<&quick_poll>("CQ", "poll", "($self, max_entries=16)", "_handle", true),
    candidate<&quick_poll_one>("CQ", "poll_one", "($self)", "_handle", true),
    candidate<&quick_poll_into>("CQ", "poll_into", "($self, buffer)", "_handle", true),
};

void install(const Candidate& candidate, nb::handle cls) {
  QuickMethod& method = candidate.method;
  if (method.function != nullptr) throw nb::type_error("the method is quick already");
  const nb::object function = cls.attr(candidate.name);
  method.hca.find(cls, "_hca");
  method.number.find(cls, candidate.number);
  if (candidate.polls) {
    method.dispatcher.find(cls, "_dispatcher");
    method.wc_class = nb::object(cls.attr("_wc_class")).release().ptr();
  }
  // inspect.signature() reads it from there.
  method.doc = std::string(candidate.name) + candidate.signature + "\n--\n\n";
  // Under `python -OO` there is none.
  const nb::object documented = function.attr("__doc__");
  if (!documented.is_none()) method.doc += nb::cast<std::string>(documented);
  method.definition = {candidate.name,
                       reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(candidate.call)),
                       METH_FASTCALL | METH_KEYWORDS, method.doc.c_str()};
  PyObject* const descriptor =
      PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(cls.ptr()), &method.definition);
  if (descriptor == nullptr) throw nb::python_error();
  method.function = nb::object(function).release().ptr();  // For the life of the process.
  nb::setattr(cls, candidate.name, nb::steal(descriptor));
}

}  // namespace

void bind_quick_methods(nb::module_& module) {
  hca_type = reinterpret_cast<PyTypeObject*>(nb::type<Hca>().ptr());
  module.def(
      "quicken",
      [](nb::type_object cls) {
        const auto name = nb::cast<std::string>(cls.attr("__name__"));
        for (const Candidate& candidate : kCandidates) {
          if (name == candidate.cls) install(candidate, cls);
        }
      },
      nb::arg("cls"), "Gives QP, SRQ and CQ their quick methods. Once each.");
}

}  // namespace softhca
