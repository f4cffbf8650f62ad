#include "bindings/module.hpp"
#include "bindings/post_many.hpp"
#include "bindings/verb.hpp"

namespace softhca {
namespace {

void bind_posting(HcaClass& hca) {
  using Kind = PostedTo::Kind;
  hca.def(
         "post_send",
         [](Hca& self, std::uint32_t qpn, nb::handle wrs) {
           post<SendWr>(self, wrs, {Kind::SEND, qpn});
         },
         nb::arg("qpn"), nb::arg("wrs").none(),
         nb::sig("def post_send(self, qpn: int, wrs: SendWr | Sequence[SendWr]) -> None"))
      .def(
          "post_recv",
          [](Hca& self, std::uint32_t qpn, nb::handle wrs) {
            post<RecvWr>(self, wrs, {Kind::RECEIVE, qpn});
          },
          nb::arg("qpn"), nb::arg("wrs").none(),
          nb::sig("def post_recv(self, qpn: int, wrs: RecvWr | Sequence[RecvWr]) -> None"))
      .def(
          "post_send_many",
          [](Hca& self, std::uint32_t qpn, nb::handle wrs, nb::handle wr_ids) {
            post_send_many(self, {Kind::SEND, qpn}, wrs, wr_ids);
          },
          nb::arg("qpn"), nb::arg("wrs").none(), nb::arg("wr_ids").none(),
          nb::sig("def post_send_many(self, qpn: int, wrs: object, wr_ids: object) -> None"))
      .def(
          "post_recv_many",
          [](Hca& self, std::uint32_t qpn, nb::handle wrs, nb::handle wr_ids) {
            post_recv_many(self, {Kind::RECEIVE, qpn}, wrs, wr_ids);
          },
          nb::arg("qpn"), nb::arg("wrs").none(), nb::arg("wr_ids").none(),
          nb::sig("def post_recv_many(self, qpn: int, wrs: object, wr_ids: object) -> None"));
}

// The queue pair joins in the adapter, and the adapter's address in the network.
void attach_mcast(Hca& hca, std::uint32_t qpn, const Gid& gid) {
  demand(hca.may_await_work("attach_mcast"));
  if (!demand(hca.call([&](Adapter& adapter) { return adapter.attach_mcast(qpn, gid); }))) return;
  const DriverError error = hca.join_group(gid);
  if (error.ok()) return;
  demand(hca.call([&](Adapter& adapter) { return adapter.detach_mcast(qpn, gid); }));
  raise_refusal(refuse(error.error, "gid", 0, error.message.c_str()));
}

void detach_mcast(Hca& hca, std::uint32_t qpn, const Gid& gid) {
  demand(hca.may_await_work("detach_mcast"));
  demand(hca.call([&](Adapter& adapter) { return adapter.detach_mcast(qpn, gid); }));
  const DriverError error = hca.leave_group(gid);
  if (!error.ok()) {
    raise_refusal(refuse(error.error, "gid", 0, error.message.c_str()));
  }
}

}  // namespace

void bind_queue_pairs(HcaClass& hca) {
  bind_posting(hca);
  hca.def(
         "create_qp",
         [](Hca& self, QpInit& init) {
           const std::uint32_t qpn =
               demand(self.call([&](Adapter& adapter) { return adapter.create_qp(init); }));
           if (init.sq_sig_all) self.cqes.all_signaled(qpn);
           return qpn;
         },
         nb::arg("init"), "Returns the QPN; `init.cap` becomes what was given.")
      .def(
          "query_qp",
          [](Hca& self, std::uint32_t qpn) {
            QpInit init;
            QpAttr attr =
                demand(self.call([&](Adapter& adapter) { return adapter.query_qp(qpn, init); }));
            return std::tuple(attr, init);
          },
          nb::arg("qpn"))
      .def("qp_rate", verb(&Adapter::qp_rate), nb::arg("qpn"))
      .def(
          "qp_load",
          [](Hca& self, std::uint32_t qpn) {
            const QpLoad load =
                demand(self.call([=](Adapter& adapter) { return adapter.qp_load(qpn); }));
            return std::tuple(load.sends, load.receives, load.resources, load.answering,
                              load.answers);
          },
          nb::arg("qpn"),
          "Slots of the send and receive queue that are taken; responder resources, those that "
          "still answer, and answers that wait.")
      .def("attach_mcast", &attach_mcast, nb::arg("qpn"), nb::arg("gid"))
      .def("detach_mcast", &detach_mcast, nb::arg("qpn"), nb::arg("gid"));
}

}  // namespace softhca
