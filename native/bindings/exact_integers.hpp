// Python integers, read without a call where they are short.
#pragma once

#include <Python.h>

#include <cstdint>

namespace softhca {

// How many digits of PyLong_SHIFT bits an exact integer has; -1 if it is negative.
inline Py_ssize_t digit_count(const PyLongObject* integer) {
#if PY_VERSION_HEX < 0x030C0000
  return Py_SIZE(integer) < 0 ? -1 : Py_SIZE(integer);
#else
  // Its tag: the sign in two bits, of which the upper one says that it is negative, a third bit,
  // and the count.
  const std::uintptr_t tag = integer->long_value.lv_tag;
  return (tag & 2) != 0 ? -1 : static_cast<Py_ssize_t>(tag >> 3);
#endif
}

inline std::uint64_t digit_at(const PyLongObject* integer, std::size_t index) {
#if PY_VERSION_HEX < 0x030C0000
  return integer->ob_digit[index];
#else
  return integer->long_value.ob_digit[index];
#endif
}

// The value of an exact, non-negative Python integer below 2^64; false for anything else.
inline bool exact_unsigned(PyObject* object, std::uint64_t& value) {
  if (object == nullptr || !PyLong_CheckExact(object)) return false;
  const auto* const integer = reinterpret_cast<const PyLongObject*>(object);
  switch (digit_count(integer)) {
    case -1:
      return false;
    case 0:
      value = 0;
      return true;
    case 1:
      value = digit_at(integer, 0);
      return true;
    case 2:
      value = digit_at(integer, 0) | digit_at(integer, 1) << PyLong_SHIFT;
      return true;
    default:
      value = PyLong_AsUnsignedLongLong(object);
      if (value != ~std::uint64_t{0} || PyErr_Occurred() == nullptr) return true;
      PyErr_Clear();
      return false;
  }
}

}  // namespace softhca
