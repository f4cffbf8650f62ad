// Turns a verb of the adapter into a method of `Hca`: run under the lock and without the GIL, its
// refusal raised, its value returned.
#pragma once

#include "bindings/hca.hpp"
#include "bindings/refusal.hpp"

namespace softhca {

template <class Outcome, class... Arguments>
auto verb(Outcome (Adapter::*method)(Arguments...)) {
  return [method](Hca& hca, Arguments... arguments) {
    return demand(hca.call([&](Adapter& adapter) { return (adapter.*method)(arguments...); }));
  };
}

template <class Outcome, class... Arguments>
auto verb(Outcome (Adapter::*method)(Arguments...) const) {
  return [method](Hca& hca, Arguments... arguments) {
    return demand(hca.call([&](Adapter& adapter) { return (adapter.*method)(arguments...); }));
  };
}

}  // namespace softhca
