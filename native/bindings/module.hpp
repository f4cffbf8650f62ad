// What each file of the bindings adds to the module.
#pragma once

#include "bindings/casters.hpp"
#include "bindings/hca.hpp"

namespace softhca {

using HcaClass = nb::class_<Hca>;

void bind_enums(nb::module_& module);
void bind_attributes(nb::module_& module);
void bind_request_types(nb::module_& module);
void bind_work_requests(nb::module_& module);
void bind_packets(nb::module_& module);
void bind_buffers(nb::module_& module);

// For the garbage collector: posted work requests hold callbacks, which may hold the device.
PyType_Slot* hca_slots();
void bind_device(HcaClass& hca);
void bind_memory(HcaClass& hca);
void bind_queues(HcaClass& hca);
void bind_queue_pairs(HcaClass& hca);
void bind_completions(HcaClass& hca);
void bind_polling(nb::module_& module, HcaClass& hca);
void bind_quick_methods(nb::module_& module);
void bind_quick_requests(nb::module_& module);
void bind_callbacks(nb::module_& module, HcaClass& hca);
void bind_completion_sinks(nb::module_& module, HcaClass& hca);
void bind_simulation(nb::module_& module, HcaClass& hca);
void bind_user_abi(nb::module_& module, HcaClass& hca);
void bind_faults(nb::module_& module);
void bind_fabric(nb::module_& module, HcaClass& hca);
void bind_invalidation(nb::module_& module, HcaClass& hca);
void bind_uabi_listener(nb::module_& module);

}  // namespace softhca
