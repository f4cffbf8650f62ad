#include "bindings/module.hpp"

#include "bindings/completion_type.hpp"
#include "bindings/refusal.hpp"

// The entry that nanobind makes; the one that Python knows is below.
#define PyInit__adapter softhca_init_adapter
NB_MODULE(_adapter, module) {
  using namespace softhca;
  module.doc() = "The native adapter. Private: `softhca` is the public face of it.";
  // What a program leaves open at its end is ResourceWarning's business.
  nb::set_leak_warnings(false);
  bind_refusal(module);
  bind_enums(module);
  bind_attributes(module);
  bind_work_requests(module);
  bind_packets(module);
  bind_buffers(module);
  bind_faults(module);
  HcaClass hca(module, "Hca", nb::type_slots(hca_slots()),
               "One adapter under its lock, with a driver or without.");
  bind_device(hca);
  bind_memory(hca);
  bind_queues(hca);
  bind_queue_pairs(hca);
  bind_completions(hca);
  bind_completion_type(module);
  bind_polling(module, hca);
  bind_completion_sinks(module, hca);
  bind_callbacks(module, hca);
  bind_simulation(module, hca);
  bind_fabric(module, hca);
  bind_invalidation(module, hca);
  bind_uabi_listener(module);
  bind_user_abi(module, hca);
  bind_quick_methods(module);
  bind_quick_requests(module);
}
#undef PyInit__adapter

// Types and stand-ins are the process's: an import by another interpreter would take them away from
// the main one.
extern "C" NB_EXPORT PyObject* PyInit__adapter() {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, "softhca is for the main interpreter");
    return nullptr;
  }
  return softhca_init_adapter();
}
