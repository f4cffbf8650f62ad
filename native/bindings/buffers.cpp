// Where the bytes of a Python object lie.
#include <nanobind/ndarray.h>

#include "bindings/gil.hpp"
#include "bindings/module.hpp"
#include "bindings/refusal.hpp"
#include "driver/advice.hpp"
#include "neighbour/shared_buffers.hpp"
#include "vocabulary/enums.hpp"

namespace softhca {
namespace {

// Keeps a DLPack tensor exported until it is released.
struct DlpackExport {
  nb::ndarray<nb::ro> tensor;
  bool read_only = false;

  // In the order of C or of Fortran.
  bool contiguous() const { return follow_each_other(true) || follow_each_other(false); }

 private:
  bool follow_each_other(bool last_runs_fastest) const {
    std::int64_t expected = 1;
    for (std::size_t step = 0; step < tensor.ndim(); ++step) {
      const std::size_t axis = last_runs_fastest ? tensor.ndim() - 1 - step : step;
      if (tensor.shape(axis) != 1 && tensor.stride(axis) != expected) return false;
      expected *= static_cast<std::int64_t>(tensor.shape(axis));
    }
    return true;
  }
};

DlpackExport take_capsule(nb::handle capsule) {
  // Who asks for bytes to write is refused those that are marked read-only.
  if (nb::ndarray<> writable; nb::try_cast(capsule, writable, false)) {
    return {nb::ndarray<nb::ro>(std::move(writable)), false};
  }
  DlpackExport taken{{}, true};
  if (!nb::try_cast(capsule, taken.tensor, false)) throw nb::type_error("no DLPack capsule");
  return taken;
}

std::uint64_t buffer_address(nb::handle object) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_ANY_CONTIGUOUS) != 0) {
    throw nb::python_error();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.buf);
  PyBuffer_Release(&buffer);
  return address;
}

constexpr std::uint32_t kReadOnlyAccess = kAccessRemoteRead;
constexpr std::uint32_t kWritableAccess =
    kAccessLocalWrite | kAccessRemoteRead | kAccessRemoteWrite | kAccessRemoteAtomic;

nb::tuple buffer_key(nb::handle object) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.buf);
  const auto length = static_cast<std::size_t>(buffer.len);
  const std::uint32_t access = buffer.readonly != 0 ? kReadOnlyAccess : kWritableAccess;
  PyBuffer_Release(&buffer);
  return nb::make_tuple(address, length, access);
}

}  // namespace

void bind_buffers(nb::module_& module) {
  nb::class_<DlpackExport>(module, "DlpackExport", "A tensor that is held through DLPack.")
      .def(
          "__init__",
          [](DlpackExport* self, nb::handle capsule) {
            new (self) DlpackExport(take_capsule(capsule));
          },
          nb::arg("capsule"), nb::sig("def __init__(self, capsule: object) -> None"))
      .def_prop_ro("address",
                   [](const DlpackExport& self) {
                     return reinterpret_cast<std::uintptr_t>(self.tensor.data());
                   })
      .def_prop_ro("nbytes", [](const DlpackExport& self) { return self.tensor.nbytes(); })
      .def_prop_ro("contiguous", &DlpackExport::contiguous)
      .def_ro("read_only", &DlpackExport::read_only)
      .def("release", [](DlpackExport& self) { self.tensor = {}; });
  module.def("buffer_address", &buffer_address, nb::arg("object"),
             nb::sig("def buffer_address(object: object) -> int"),
             "Address of a contiguous buffer; it stays only while the caller holds an export.");
  module.def(
      "advise_memory",
      [](std::uint64_t address, std::uint64_t length, std::uint32_t advice) {
        const Status status = [&] {
          const GilReleased release;
          return advise_memory(address, length, advice);
        }();
        demand(status);
      },
      nb::arg("address"), nb::arg("length"), nb::arg("advice"));
  module.def(
      "share_buffer",
      [](std::uint64_t address, std::uint64_t length, int fd) {
        static_cast<void>(shared_buffers().add(address, length, fd));
      },
      nb::arg("address"), nb::arg("length"), nb::arg("fd"),
      "This memory is that file: adapters of this host may map it.");
  module.def(
      "unshare_buffer", [](int fd) { shared_buffers().remove(fd); }, nb::arg("fd"));
  module.def("buffer_key", &buffer_key, nb::arg("object"),
             nb::sig("def buffer_key(object: object) -> tuple[int, int, int]"),
             "Address, bytes, and the rights that a contiguous buffer is registered with unless "
             "others are asked for.");
}

}  // namespace softhca
