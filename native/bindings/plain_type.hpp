// Python types that are made without nanobind, which keeps a table of all instances: too much for
// those that live for one message. Python classes derive from them.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <type_traits>

namespace softhca {

// Makes a type of a specification and puts it into the module. It lives as long as the process.
inline PyTypeObject* add_type(nanobind::module_& module, const char* name, PyType_Spec spec) {
  namespace nb = nanobind;
  const std::string full = nb::cast<std::string>(module.attr("__name__")) + "." + name;
  spec.name = full.c_str();
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) throw nb::python_error();
  module.attr(name) = nb::borrow(type);
  return reinterpret_cast<PyTypeObject*>(type);
}

// A native value as a reference to an object; null with a Python error.
template <class T>
PyObject* object_of(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return PyBool_FromLong(value);
  } else if constexpr (std::is_enum_v<T>) {
    return nanobind::cast(value).release().ptr();
  } else {
    static_assert(std::is_unsigned_v<T>);
    return PyLong_FromUnsignedLongLong(value);
  }
}

// What a getter returns, with what nanobind throws turned into a Python error.
template <class Make>
PyObject* reference_from(Make&& make) {
  try {
    return make();
  } catch (nanobind::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
  return nullptr;
}

// True if a class adds no field to the instances of its type: those are all alike.
inline bool adds_nothing(const PyTypeObject* cls, const PyTypeObject* type) {
  return cls->tp_basicsize == type->tp_basicsize && cls->tp_dictoffset == 0 &&
         cls->tp_weaklistoffset == 0 && cls->tp_finalize == nullptr;
}

}  // namespace softhca
