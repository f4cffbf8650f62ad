// What becomes of callbacks whose completions never come.
#pragma once

#include "bindings/casters.hpp"

namespace softhca {

// Calls forgotten() of a callback; what it raises goes to sys.unraisablehook.
void tell_forgotten(nb::handle cqe);

}  // namespace softhca
