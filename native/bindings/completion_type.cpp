#include "bindings/completion_type.hpp"

#include <structmember.h>

#include <array>
#include <cstddef>

#include "bindings/instance_pool.hpp"
#include "bindings/plain_type.hpp"

namespace softhca {
namespace {

// What every program looks at is there as an object, where Python reads it without a call.
struct CompletionObject {
  PyObject ob_base;
  PyObject* wr_id;
  PyObject* status;
  PyObject* cqe;  // Null: none.
  Completion completion;
};

PyTypeObject* type = nullptr;
InstancePool pool;

CompletionObject& of(PyObject* self) { return *reinterpret_cast<CompletionObject*>(self); }

template <auto field>
PyObject* get(PyObject* self, void*) {
  return reference_from([&] { return object_of(of(self).completion.*field); });
}

PyObject* get_cqe(PyObject* self, void*) {
  PyObject* const cqe = of(self).cqe;
  return Py_NewRef(cqe == nullptr ? Py_None : cqe);
}

PyObject* get_flags(PyObject* self, void*) {
  const auto flags = static_cast<WcFlags>(of(self).completion.wc_flags);
  return reference_from([&] { return object_of(flags); });
}

PyMemberDef members[] = {
    {"wr_id", T_OBJECT_EX, offsetof(CompletionObject, wr_id), READONLY, nullptr},
    {"status", T_OBJECT_EX, offsetof(CompletionObject, status), READONLY, nullptr},
    {},
};

PyGetSetDef getters[] = {
    {"cqe", get_cqe, nullptr, nullptr, nullptr},
    {"opcode", get<&Completion::opcode>, nullptr, nullptr, nullptr},
    {"sl", get<&Completion::sl>, nullptr, nullptr, nullptr},
    {"port", get<&Completion::port>, nullptr, nullptr, nullptr},
    {"wc_flags", get_flags, nullptr, nullptr, nullptr},
    {"byte_len", get<&Completion::byte_len>, nullptr, nullptr, nullptr},
    {"immediate_or_rkey", get<&Completion::immediate_or_rkey>, nullptr, nullptr, nullptr},
    {"qp_num", get<&Completion::qpn>, nullptr, nullptr, nullptr},
    {"src_qp", get<&Completion::source_qpn>, nullptr, nullptr, nullptr},
    {"pkey_index", get<&Completion::pkey_index>, nullptr, nullptr, nullptr},
    {"is_receive", get<&Completion::is_receive>, nullptr, nullptr, nullptr},
    {"solicited", get<&Completion::solicited>, nullptr, nullptr, nullptr},
    {"reason", get<&Completion::reason>, nullptr, nullptr, nullptr},
    {"by_peer", get<&Completion::by_peer>, nullptr, nullptr, nullptr},
    {"psn", get<&Completion::psn>, nullptr, nullptr, nullptr},
    {"key", get<&Completion::key>, nullptr, nullptr, nullptr},
    {"address", get<&Completion::address>, nullptr, nullptr, nullptr},
    {"length", get<&Completion::length>, nullptr, nullptr, nullptr},
    {"timestamp_ns", get<&Completion::timestamp_ns>, nullptr, nullptr, nullptr},
    {},
};

// A callback that keeps its completion makes a cycle, which the garbage collector must see.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(of(self).cqe);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(of(self).cqe);
  return 0;
}

// Of instances of the type, and of classes that add_nothing() to it.
void deallocate(PyObject* self) {
  PyTypeObject* const cls = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(of(self).wr_id);
  Py_CLEAR(of(self).status);
  Py_CLEAR(of(self).cqe);
  if (cls->tp_dealloc != deallocate || !pool.give(self)) cls->tp_free(self);
  Py_DECREF(cls);
}

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("One entry of a completion queue; immutable.")},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {0, nullptr},
};

constexpr unsigned int kFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                                Py_TPFLAGS_DISALLOW_INSTANTIATION;

// A new instance without references; null with a Python error.
PyObject* allocate(PyTypeObject* cls) {
  if (cls->tp_dealloc != deallocate) return cls->tp_alloc(cls, 0);
  PyObject* const used = pool.take(cls);
  if (used != nullptr) return used;
  auto* const made = PyObject_GC_New(CompletionObject, cls);
  if (made != nullptr) made->wr_id = made->status = made->cqe = nullptr;
  return reinterpret_cast<PyObject*>(made);
}

// The enumeration's member, borrowed. ValueError if there is none.
PyObject* member_of(WcStatus status) {
  static std::array<PyObject*, 256> known{};
  PyObject*& member = known[static_cast<std::uint8_t>(status)];
  if (member == nullptr) member = nb::cast(status).release().ptr();
  return member;
}

}  // namespace

nb::object completion_object(nb::handle cls, const Completion& completion, nb::handle cqe) {
  auto* const wanted = reinterpret_cast<PyTypeObject*>(cls.ptr());
  if (wanted->tp_dealloc != deallocate && PyType_IsSubtype(wanted, type) == 0) {
    throw nb::type_error("cls must be a class of completions");
  }
  nb::object made = nb::steal(allocate(wanted));
  if (!made.is_valid()) throw nb::python_error();
  CompletionObject& self = of(made.ptr());
  self.completion = completion;
  self.status = Py_NewRef(member_of(completion.status));
  self.wr_id = PyLong_FromUnsignedLongLong(completion.wr_id);
  if (self.wr_id == nullptr) throw nb::python_error();
  if (cqe.is_valid()) {
    self.cqe = Py_NewRef(cqe.ptr());
    if (wanted->tp_dealloc == deallocate) PyObject_GC_Track(made.ptr());
  }
  return made;
}

const Completion* find_completion(nb::handle object) {
  return PyObject_TypeCheck(object.ptr(), type) ? &of(object.ptr()).completion : nullptr;
}

void bind_completion_type(nb::module_& module) {
  type = add_type(module, "Completion",
                  {.name = nullptr,
                   .basicsize = sizeof(CompletionObject),
                   .itemsize = 0,
                   .flags = kFlags,
                   .slots = slots});
  module.def(
      "quicken_completions",
      [](nb::type_object cls) {
        auto* const derived = reinterpret_cast<PyTypeObject*>(cls.ptr());
        if (PyType_IsSubtype(derived, type) == 0 || !adds_nothing(derived, type)) {
          throw nb::type_error("cls must be a class of completions that adds no field");
        }
        derived->tp_dealloc = deallocate;
      },
      nb::arg("cls"), "Lets a class that adds no field to completions make them as fast.");
}

}  // namespace softhca
