// Work requests as Python sees them: instances of two types, SendWr and RecvWr, that the classes of
// the Python API derive from. Programs make one for each message.
#pragma once

#include <cstdint>

#include "bindings/casters.hpp"
#include "queue/work_request.hpp"

namespace softhca {

// How far an instance has come.
enum class Making : std::uint8_t {
  EMPTY,        // Its constructor was not called.
  CONSTRUCTED,  // It was.
  QUICK,        // See quick_requests.cpp.
};

template <class Wr>
struct RequestObject {
  PyObject ob_base;
  PyObject* kept;  // What keeps its buffers valid: a tuple, or a single thing. Null: nothing.
  PyObject* cqe;   // Its callback. Null: none.
  PyObject* ah;    // The address handle, of sends. Null: none.
  Making making;
  Wr wr;

  static RequestObject& of(PyObject* self) { return *reinterpret_cast<RequestObject*>(self); }
};

// The types; null until they are bound.
template <class Wr>
inline PyTypeObject* request_type = nullptr;

// Frees an instance of a type, or of a class that adds no field to it.
template <class Wr>
void deallocate_request(PyObject* self);

// A new instance of such a class, not tracked by the garbage collector; null with a Python error.
// Its work request may still be one that was made quickly before.
template <class Wr>
PyObject* allocate_request(PyTypeObject* cls);

// The work request in a Python object; null if it is none, or its constructor was never called.
template <class Wr>
const Wr* find_work_request(nb::handle object) {
  PyTypeObject* const cls = Py_TYPE(object.ptr());
  const bool is_one =
      cls->tp_dealloc == deallocate_request<Wr> || PyType_IsSubtype(cls, request_type<Wr>) != 0;
  if (!is_one || RequestObject<Wr>::of(object.ptr()).making == Making::EMPTY) return nullptr;
  return &RequestObject<Wr>::of(object.ptr()).wr;
}

}  // namespace softhca
