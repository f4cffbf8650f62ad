#include "bindings/request_types.hpp"

#include <new>
#include <utility>

#include "bindings/instance_pool.hpp"
#include "bindings/module.hpp"
#include "bindings/plain_type.hpp"

namespace softhca {
namespace {

template <class Wr>
InstancePool pool;

template <class Wr, auto field>
PyObject* get(PyObject* self, void*) {
  return reference_from([&] { return object_of(RequestObject<Wr>::of(self).wr.*field); });
}

PyObject* get_send_flags(PyObject* self, void*) {
  const auto flags = static_cast<SendFlags>(RequestObject<SendWr>::of(self).wr.send_flags);
  return reference_from([&] { return object_of(flags); });
}

template <class Wr, auto place>
PyObject* get_object(PyObject* self, void*) {
  PyObject* const object = RequestObject<Wr>::of(self).*place;
  return Py_NewRef(object == nullptr ? Py_None : object);
}

template <class Wr>
PyObject* get_kept(PyObject* self, void*) {
  PyObject* const kept = RequestObject<Wr>::of(self).kept;
  if (kept == nullptr) return PyTuple_New(0);
  return PyTuple_CheckExact(kept) ? Py_NewRef(kept) : PyTuple_Pack(1, kept);
}

template <class Wr>
PyObject* get_byte_count(PyObject* self, void*) {
  std::uint64_t count = 0;
  for (const Sge& sge : RequestObject<Wr>::of(self).wr.sges) count += sge.length;
  return PyLong_FromUnsignedLongLong(count);
}

template <auto field>
constexpr getter send = get<SendWr, field>;

PyGetSetDef send_getters[] = {
    {"wr_id", send<&SendWr::wr_id>, nullptr, nullptr, nullptr},
    {"opcode", send<&SendWr::opcode>, nullptr, nullptr, nullptr},
    {"send_flags", get_send_flags, nullptr, nullptr, nullptr},
    {"immediate", send<&SendWr::immediate>, nullptr, nullptr, nullptr},
    {"invalidate_rkey", send<&SendWr::invalidate_rkey>, nullptr, nullptr, nullptr},
    {"remote_address", send<&SendWr::remote_address>, nullptr, nullptr, nullptr},
    {"rkey", send<&SendWr::rkey>, nullptr, nullptr, nullptr},
    {"compare_add", send<&SendWr::compare_add>, nullptr, nullptr, nullptr},
    {"swap", send<&SendWr::swap>, nullptr, nullptr, nullptr},
    {"remote_qpn", send<&SendWr::remote_qpn>, nullptr, nullptr, nullptr},
    {"remote_qkey", send<&SendWr::remote_qkey>, nullptr, nullptr, nullptr},
    {"xrc_srqn", send<&SendWr::xrc_srqn>, nullptr, nullptr, nullptr},
    {"byte_count", get_byte_count<SendWr>, nullptr, nullptr, nullptr},
    {"cqe", get_object<SendWr, &RequestObject<SendWr>::cqe>, nullptr, nullptr, nullptr},
    {"ah", get_object<SendWr, &RequestObject<SendWr>::ah>, nullptr, nullptr, nullptr},
    {"_kept", get_kept<SendWr>, nullptr, nullptr, nullptr},
    {},
};

PyGetSetDef receive_getters[] = {
    {"wr_id", get<RecvWr, &RecvWr::wr_id>, nullptr, nullptr, nullptr},
    {"byte_count", get_byte_count<RecvWr>, nullptr, nullptr, nullptr},
    {"cqe", get_object<RecvWr, &RequestObject<RecvWr>::cqe>, nullptr, nullptr, nullptr},
    {"_kept", get_kept<RecvWr>, nullptr, nullptr, nullptr},
    {},
};

// A callback that keeps its work request makes a cycle, which the garbage collector must see.
template <class Wr>
int traverse(PyObject* self, visitproc visit, void* arg) {
  const auto& request = RequestObject<Wr>::of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(request.kept);
  Py_VISIT(request.cqe);
  Py_VISIT(request.ah);
  return 0;
}

template <class Wr>
int clear(PyObject* self) {
  auto& request = RequestObject<Wr>::of(self);
  Py_CLEAR(request.kept);
  Py_CLEAR(request.cqe);
  Py_CLEAR(request.ah);
  return 0;
}

// Before a constructor, which may take whatever it likes.
template <class Wr>
PyObject* make_empty(PyTypeObject* cls, PyObject*, PyObject*) {
  PyObject* const self = cls->tp_alloc(cls, 0);
  if (self != nullptr) new (&RequestObject<Wr>::of(self).wr) Wr();
  return self;
}

template <class Wr>
PyTypeObject* add_request_type(nb::module_& module, const char* name, const char* doc,
                               PyGetSetDef* getters) {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>(doc)},
      {Py_tp_getset, getters},
      {Py_tp_new, reinterpret_cast<void*>(make_empty<Wr>)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse<Wr>)},
      {Py_tp_clear, reinterpret_cast<void*>(clear<Wr>)},
      {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_request<Wr>)},
      {0, nullptr},
  };
  return add_type(module, name,
                  {.name = nullptr,
                   .basicsize = sizeof(RequestObject<Wr>),
                   .itemsize = 0,
                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                   .slots = slots});
}

}  // namespace

template <class Wr>
void deallocate_request(PyObject* self) {
  PyTypeObject* const cls = Py_TYPE(self);
  auto& request = RequestObject<Wr>::of(self);
  PyObject_GC_UnTrack(self);
  clear<Wr>(self);
  const bool is_like_others = request.making == Making::QUICK;
  request.making = Making::EMPTY;
  if (!is_like_others || cls->tp_dealloc != deallocate_request<Wr> || !pool<Wr>.give(self)) {
    request.wr.~Wr();
    cls->tp_free(self);
  }
  Py_DECREF(cls);
}

template <class Wr>
PyObject* allocate_request(PyTypeObject* cls) {
  PyObject* const used = pool<Wr>.take(cls);
  if (used != nullptr) return used;
  PyObject* const made = make_empty<Wr>(cls, nullptr, nullptr);
  if (made != nullptr) PyObject_GC_UnTrack(made);
  return made;
}

template void deallocate_request<SendWr>(PyObject*);
template void deallocate_request<RecvWr>(PyObject*);
template PyObject* allocate_request<SendWr>(PyTypeObject*);
template PyObject* allocate_request<RecvWr>(PyTypeObject*);

void bind_request_types(nb::module_& module) {
  request_type<SendWr> = add_request_type<SendWr>(
      module, "SendWr", "A work request for a send queue; immutable.", send_getters);
  request_type<RecvWr> = add_request_type<RecvWr>(
      module, "RecvWr", "A work request for a receive queue; immutable.", receive_getters);
}

}  // namespace softhca
