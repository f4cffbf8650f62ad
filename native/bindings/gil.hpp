// Giving up the GIL and taking it, in threads that may outlive the interpreter.
//
// A thread that asks an ending interpreter for the GIL is ended on the spot, as by pthread_exit(),
// and unwinds through destructors which take that for a fault and abort the program. Here it rests
// instead, until the process is gone.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace softhca {

// Calls `function`, which may lose the GIL for good.
template <class Function>
auto or_rest(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// A reference whose end may run Python code, which may lose the GIL for good. No frame of
// nanobind's is on the way, since none lets an unwinding thread through.
class Kept : public nanobind::object {
 public:
  Kept() = default;
  Kept(nanobind::object&& object) : nanobind::object(std::move(object)) {}
  Kept(const Kept&) = default;
  Kept(Kept&&) = default;
  Kept& operator=(const Kept&) = default;
  Kept& operator=(Kept&&) = default;
  ~Kept() {
    PyObject* const last = release().ptr();
    or_rest([last] { Py_XDECREF(last); });
  }
};

// Calls Python as nanobind does, but may lose the GIL for good. What is returned is null if there
// is a Python error instead. Not for handlers of C++ exceptions, in which or_rest() cannot catch.
template <class... Arguments>
Kept call_python(nanobind::handle callable, Arguments... arguments) {
  const std::array<PyObject*, sizeof...(arguments) + 1> list{nullptr, arguments.ptr()...};
  PyObject* const result = or_rest([&] {
    return PyObject_Vectorcall(callable.ptr(), list.data() + 1,
                               sizeof...(arguments) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  });
  return nanobind::steal(result);
}

// The same for a method, whose name is interned.
template <class... Arguments>
Kept call_method(PyObject* name, nanobind::handle self, Arguments... arguments) {
  const std::array<PyObject*, sizeof...(arguments) + 1> list{self.ptr(), arguments.ptr()...};
  PyObject* const result =
      or_rest([&] { return PyObject_VectorcallMethod(name, list.data(), list.size(), nullptr); });
  return nanobind::steal(result);
}

// Hands the Python error to sys.unraisablehook, as one that happened in `where`.
inline void report_unraisable(nanobind::handle where) {
  or_rest([where] { PyErr_WriteUnraisable(where.ptr()); });
}
inline void report_unraisable(const char* where) { report_unraisable(nanobind::str(where)); }

class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    or_rest([this] { PyEval_RestoreThread(state_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

class GilAcquired {
 public:
  GilAcquired() : state_(or_rest([] { return PyGILState_Ensure(); })) {}
  ~GilAcquired() { PyGILState_Release(state_); }
  GilAcquired(const GilAcquired&) = delete;
  GilAcquired& operator=(const GilAcquired&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace softhca
