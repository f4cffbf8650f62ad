#include "bindings/module.hpp"
#include "bindings/verb.hpp"

namespace softhca {

void bind_memory(HcaClass& hca) {
  hca.def("alloc_pd", verb(&Adapter::alloc_pd))
      .def("dealloc_pd", verb(&Adapter::dealloc_pd), nb::arg("pd"))
      .def("reg_mr", verb(&Adapter::reg_mr), nb::arg("pd"), nb::arg("address"), nb::arg("length"),
           nb::arg("iova"), nb::arg("access"))
      .def("dereg_mr", verb(&Adapter::dereg_mr), nb::arg("mr"))
      .def("create_ah", verb(&Adapter::create_ah), nb::arg("pd"), nb::arg("attr"))
      .def("query_ah", verb(&Adapter::query_ah), nb::arg("ah"))
      .def("destroy_ah", verb(&Adapter::destroy_ah), nb::arg("ah"))
      .def("alloc_xrcd", verb(&Adapter::alloc_xrcd))
      .def("dealloc_xrcd", verb(&Adapter::dealloc_xrcd), nb::arg("xrcd"));
}

}  // namespace softhca
