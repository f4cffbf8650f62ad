// Attributes that instances of Python classes with __slots__ keep, read where they lie.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <structmember.h>  // PyMemberDef, up to Python 3.11; it needs Python.h before it.

namespace softhca {

class Slot {
 public:
  // TypeError if `cls` has no slot of that name.
  void find(nanobind::handle cls, const char* name) {
    const nanobind::object descriptor = cls.attr(name);
    if (!Py_IS_TYPE(descriptor.ptr(), &PyMemberDescr_Type)) throw nanobind::type_error(name);
    offset_ = reinterpret_cast<PyMemberDescrObject*>(descriptor.ptr())->d_member->offset;
  }
  // Borrowed; null if it is not set.
  PyObject* of(PyObject* self) const { return *place(self); }
  // Of an instance in which it was never set; takes the reference over.
  void set(PyObject* self, PyObject* value) const { *place(self) = value; }

 private:
  PyObject** place(PyObject* self) const {
    return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(self) + offset_);
  }

  Py_ssize_t offset_ = 0;
};

}  // namespace softhca
