// Completions as Python sees them: instances of a type of their own, which are made for each one
// that is polled.
#pragma once

#include "bindings/casters.hpp"
#include "queue/completion.hpp"

namespace softhca {

// The completion as an instance of `cls`, which is the type or a class derived from it.
nb::object completion_object(nb::handle cls, const Completion& completion, nb::handle cqe);

// The completion in such an object; null if it is another one.
const Completion* find_completion(nb::handle object);

void bind_completion_type(nb::module_& module);

}  // namespace softhca
