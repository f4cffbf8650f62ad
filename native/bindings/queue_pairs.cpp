#include <algorithm>
#include <span>

#include "bindings/module.hpp"
#include "bindings/post.hpp"
#include "bindings/verb.hpp"

namespace softhca {
namespace {

// A window or region is a number of its device, and would name another one here.
Status post_own(const Hca& hca, Adapter& adapter, std::uint32_t qpn,
                std::span<const SendWr* const> list, std::size_t& posted, std::uint64_t now_ns,
                std::span<const std::uint64_t> cqes) {
  const auto foreign = std::ranges::find_if(list, [&hca](const SendWr* wr) {
    return wr->memory.owner != 0 && wr->memory.owner != hca.identity();
  });
  const auto own = list.first(static_cast<std::size_t>(foreign - list.begin()));
  const Status status = adapter.post_send(qpn, own, posted, now_ns, cqes);
  if (!status.ok() || foreign == list.end()) return status;
  return refuse(EINVAL, (*foreign)->opcode == WrOpcode::BIND_MW ? "mw" : "mr",
                (*foreign)->memory.object, "belongs to another device");
}

void bind_posting(HcaClass& hca) {
  hca.def(
         "post_send",
         [](Hca& self, std::uint32_t qpn, nb::handle wrs) {
           post<SendWr>(self, wrs, {PostedTo::Kind::SEND, qpn},
                        [&, qpn](Adapter& adapter, auto list, std::size_t& posted,
                                 std::uint64_t now_ns, auto cqes) {
                          return post_own(self, adapter, qpn, list, posted, now_ns, cqes);
                        });
         },
         nb::arg("qpn"), nb::arg("wrs").none(),
         nb::sig("def post_send(self, qpn: int, wrs: SendWr | Sequence[SendWr]) -> None"))
      .def(
          "post_recv",
          [](Hca& self, std::uint32_t qpn, nb::handle wrs) {
            post<RecvWr>(
                self, wrs, {PostedTo::Kind::RECEIVE, qpn},
                [=](Adapter& adapter, auto list, std::size_t& posted, std::uint64_t now_ns,
                    auto cqes) { return adapter.post_recv(qpn, list, posted, now_ns, cqes); });
          },
          nb::arg("qpn"), nb::arg("wrs").none(),
          nb::sig("def post_recv(self, qpn: int, wrs: RecvWr | Sequence[RecvWr]) -> None"));
}

// The queue pair joins in the adapter, and the adapter's address in the network.
void attach_mcast(Hca& hca, std::uint32_t qpn, const Gid& gid) {
  demand(hca.call([&](Adapter& adapter) { return adapter.attach_mcast(qpn, gid); }));
  const DriverError error = hca.join_group(gid);
  if (error.ok()) return;
  demand(hca.call([&](Adapter& adapter) { return adapter.detach_mcast(qpn, gid); }));
  raise_refusal({.error = error.error, .argument = "gid", .rule = error.message.c_str()});
}

void detach_mcast(Hca& hca, std::uint32_t qpn, const Gid& gid) {
  demand(hca.call([&](Adapter& adapter) { return adapter.detach_mcast(qpn, gid); }));
  const DriverError error = hca.leave_group(gid);
  if (!error.ok()) {
    raise_refusal({.error = error.error, .argument = "gid", .rule = error.message.c_str()});
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
