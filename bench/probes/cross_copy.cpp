// Probe v: process_vm_readv from the memory of another process, by an address of each.
#include <errno.h>
#include <nanobind/nanobind.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace {

// Seconds of so many.
double read_often(int process, std::uintptr_t there, std::uintptr_t here, std::size_t size,
                  long count) {
  const iovec far{reinterpret_cast<void*>(there), size};
  const iovec near{reinterpret_cast<void*>(here), size};
  bool whole = true;
  std::chrono::duration<double> spent{};
  {
    const nanobind::gil_scoped_release others_run;
    const auto start = std::chrono::steady_clock::now();
    for (long turn = 0; turn < count && whole; ++turn) {
      whole = process_vm_readv(process, &near, 1, &far, 1, 0) == static_cast<ssize_t>(size);
    }
    spent = std::chrono::steady_clock::now() - start;
  }
  if (!whole) {
    PyErr_SetFromErrno(PyExc_OSError);
    throw nanobind::python_error();
  }
  return spent.count();
}

}  // namespace

NB_MODULE(cross_copy, module) { module.def("read_often", &read_often); }
