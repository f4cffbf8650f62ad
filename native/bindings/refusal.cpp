#include "bindings/refusal.hpp"

#include <string>

#include "bindings/gil.hpp"

namespace nb = nanobind;

namespace softhca {
namespace {

// Borrowed for the life of the process: a class of a package is never unloaded.
PyObject* refusal_class = nullptr;

}  // namespace

void bind_refusal(nb::module_& module) {
  module.def(
      "raise_as", [](nb::type_object cls) { refusal_class = cls.release().ptr(); }, nb::arg("cls"),
      "Names the class whose constructor takes (errno, argument, value, rule, bad_wr).");
}

void raise_refusal(const Status& status, nb::handle bad_wr) {
  raise_refusal_of(nb::cast(status.value), status, bad_wr);
}

void raise_refusal_of(nb::handle value, const Status& status, nb::handle bad_wr) {
  nb::handle cls = refusal_class != nullptr ? refusal_class : PyExc_OSError;
  nb::object wr = bad_wr.is_valid() ? nb::borrow(bad_wr) : nb::none();
  std::string rule = status.rule;
  if (status.bound != Status::kNoBound) rule += ", which is " + std::to_string(status.bound);
  const Kept error = call_python(cls, nb::cast(status.error), nb::cast(status.argument), value,
                                 nb::str(rule.c_str(), rule.size()), wr);
  if (error.is_valid()) PyErr_SetObject(cls.ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace softhca
