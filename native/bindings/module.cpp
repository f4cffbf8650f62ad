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

namespace {

using Execute = int (*)(PyObject*);
Execute fill_module = nullptr;

// Types and stand-ins are the process's: an import by another interpreter would take them away from
// the main one. It is the filling that happens there; Python 3.13 asks for the definition in the
// main one, whoever imports.
int fill_for_main(PyObject* module) {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, "softhca is for the main interpreter");
    return -1;
  }
  // Of the main one, too: after Py_FinalizeEx() there may be another, and somebody may have taken
  // the modules out of sys.modules.
  static bool filled = false;
  if (filled) {
    PyErr_SetString(PyExc_ImportError,
                    "softhca can be imported once in a process, and was imported before");
    return -1;
  }
  filled = true;
  return fill_module(module);
}

}  // namespace

extern "C" NB_EXPORT PyObject* PyInit__adapter() {
  PyObject* const made = softhca_init_adapter();
  if (made == nullptr || fill_module != nullptr) return made;
  for (PyModuleDef_Slot* slot = reinterpret_cast<PyModuleDef*>(made)->m_slots; slot->slot != 0;
       ++slot) {
    if (slot->slot != Py_mod_exec) continue;
    fill_module = reinterpret_cast<Execute>(slot->value);
    slot->value = reinterpret_cast<void*>(fill_for_main);
  }
  return made;
}
