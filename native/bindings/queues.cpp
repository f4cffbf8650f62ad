#include "bindings/module.hpp"
#include "bindings/post_many.hpp"
#include "bindings/verb.hpp"

namespace softhca {

void bind_queues(HcaClass& hca) {
  hca.def("create_cq", verb(&Adapter::create_cq), nb::arg("cqe"), nb::arg("timestamps") = true)
      .def("cq_capacity", verb(&Adapter::cq_capacity), nb::arg("cq"))
      .def("cq_overflowed", verb(&Adapter::cq_overflowed), nb::arg("cq"))
      .def("overflow_cq", verb(&Adapter::overflow_cq), nb::arg("cq"))
      .def("resize_cq", verb(&Adapter::resize_cq), nb::arg("cq"), nb::arg("cqe"))
      .def("moderate_cq", verb(&Adapter::moderate_cq), nb::arg("cq"), nb::arg("count"),
           nb::arg("period_ns"))
      .def(
          "req_notify_cq",
          [](Hca& self, std::uint32_t cq, std::uint32_t flags) {
            return demand(self.req_notify(cq, flags));
          },
          nb::arg("cq"), nb::arg("flags"))
      .def("create_srq", verb(&Adapter::create_srq), nb::arg("pd"), nb::arg("attr"),
           nb::arg("xrcd"), nb::arg("cq"))
      .def("modify_srq", verb(&Adapter::modify_srq), nb::arg("srq"), nb::arg("attr"),
           nb::arg("mask"))
      .def("query_srq", verb(&Adapter::query_srq), nb::arg("srq"))
      .def("srq_number", verb(&Adapter::srq_number), nb::arg("srq"))
      .def(
          "post_srq_recv",
          [](Hca& self, std::uint32_t srq, nb::handle wrs) {
            post<RecvWr>(self, wrs, {PostedTo::Kind::SHARED, srq});
          },
          nb::arg("srq"), nb::arg("wrs").none(),
          nb::sig("def post_srq_recv(self, srq: int, wrs: RecvWr | Sequence[RecvWr]) -> None"))
      .def(
          "post_srq_recv_many",
          [](Hca& self, std::uint32_t srq, nb::handle wrs, nb::handle wr_ids) {
            post_recv_many(self, {PostedTo::Kind::SHARED, srq}, wrs, wr_ids);
          },
          nb::arg("srq"), nb::arg("wrs").none(), nb::arg("wr_ids").none(),
          nb::sig("def post_srq_recv_many(self, srq: int, wrs: object, wr_ids: object) -> None"));
}

}  // namespace softhca
