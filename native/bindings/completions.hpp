// Completions as Python sees them.
#pragma once

#include "bindings/casters.hpp"
#include "bindings/cqe_table.hpp"
#include "queue/completion.hpp"

namespace softhca {

// A completion with the callback of its work request; None if it has none.
struct PolledCompletion : Completion {
  explicit PolledCompletion(const Completion& completion) : Completion(completion) {}
  nb::object callback = nb::none();
};

// The completion as an instance of `cls`, which is the bound class or a subclass of it.
nb::object completion_object(nb::handle cls, const Completion& completion, nb::handle cqe);

// Calls forgotten() of a callback; what it raises goes to sys.unraisablehook.
void tell_forgotten(nb::handle cqe);

}  // namespace softhca
