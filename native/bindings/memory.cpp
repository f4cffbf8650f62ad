#include <nanobind/stl/pair.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "bindings/module.hpp"
#include "bindings/verb.hpp"

namespace softhca {
namespace {

using BindTuple = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t>;

void memcpy_to_dm(Hca& hca, std::uint32_t dm, std::uint64_t offset, const nb::bytes& bytes) {
  demand(
      hca.call([&](Adapter& adapter) { return adapter.memcpy_to_dm(dm, offset, view_of(bytes)); }));
}

nb::bytes memcpy_from_dm(Hca& hca, std::uint32_t dm, std::uint64_t offset, std::uint64_t length) {
  std::vector<std::uint8_t> bytes;
  demand(hca.call([&](Adapter& adapter) {
    // No more than there can be, whatever was asked for; the adapter refuses it.
    const std::uint64_t most = adapter.config().limits.max_dm_size;
    bytes.resize(std::min(length, most + 1));
    return adapter.memcpy_from_dm(dm, offset, bytes);
  }));
  return bytes_of(bytes);
}

}  // namespace

void bind_memory(HcaClass& hca) {
  hca.def("alloc_pd", verb(&Adapter::alloc_pd))
      .def("dealloc_pd", verb(&Adapter::dealloc_pd), nb::arg("pd"))
      .def("reg_mr", verb(&Adapter::reg_mr), nb::arg("pd"), nb::arg("address"), nb::arg("length"),
           nb::arg("iova"), nb::arg("access"))
      .def("dereg_mr", verb(&Adapter::dereg_mr), nb::arg("mr"))
      .def(
          "rereg_mr",
          [](Hca& self, std::uint32_t mr, std::uint32_t flags, std::uint32_t pd,
             std::uint64_t address, std::uint64_t length, std::uint64_t iova,
             std::uint32_t access) {
            const RegionRequest wanted{pd, address, length, iova, access};
            return demand(
                self.call([&](Adapter& adapter) { return adapter.rereg_mr(mr, flags, wanted); }));
          },
          nb::arg("mr"), nb::arg("flags"), nb::arg("pd"), nb::arg("address"), nb::arg("length"),
          nb::arg("iova"), nb::arg("access"))
      .def("alloc_mr", verb(&Adapter::alloc_mr), nb::arg("pd"), nb::arg("mr_type"),
           nb::arg("max_sg"))
      .def(
          "map_mr_sg",
          [](Hca& self, std::uint32_t mr,
             const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges,
             std::uint64_t page_size, std::optional<std::uint64_t> iova, bool writable) {
            const FastMapping mapping{ranges, page_size, iova, writable};
            demand(self.call([&](Adapter& adapter) { return adapter.map_mr_sg(mr, mapping); }));
          },
          nb::arg("mr"), nb::arg("ranges"), nb::arg("page_size"), nb::arg("iova").none(),
          nb::arg("writable"))
      .def("alloc_mw", verb(&Adapter::alloc_mw), nb::arg("pd"), nb::arg("mw_type"))
      .def("dealloc_mw", verb(&Adapter::dealloc_mw), nb::arg("mw"))
      .def(
          "bind_mw",
          [](Hca& self, std::uint32_t qpn, std::uint32_t mw, const BindTuple& bind,
             std::uint64_t wr_id, std::uint32_t send_flags) {
            const auto& [lkey, address, length, access] = bind;
            const BindInfo info{lkey, address, length, access};
            return demand(self.call([&](Adapter& adapter, std::uint64_t now_ns) {
              return adapter.bind_mw(qpn, mw, info, wr_id, send_flags, now_ns);
            }));
          },
          nb::arg("qpn"), nb::arg("mw"), nb::arg("bind"), nb::arg("wr_id"), nb::arg("send_flags"),
          "Type 1. `bind` is (lkey, address, length, access); returns the new key.")
      .def(
          "query_key",
          [](Hca& self, std::uint32_t handle) {
            const KeyInfo info =
                demand(self.call([=](Adapter& adapter) { return adapter.query_key(handle); }));
            return std::tuple(info.key, info.state);
          },
          nb::arg("handle"), "(key, state) of a region or window.")
      .def("alloc_dm", verb(&Adapter::alloc_dm), nb::arg("length"), nb::arg("log_align_req"))
      .def("free_dm", verb(&Adapter::free_dm), nb::arg("dm"))
      .def("memcpy_to_dm", &memcpy_to_dm, nb::arg("dm"), nb::arg("offset"), nb::arg("bytes"))
      .def("memcpy_from_dm", &memcpy_from_dm, nb::arg("dm"), nb::arg("offset"), nb::arg("length"))
      .def("reg_dm_mr", verb(&Adapter::reg_dm_mr), nb::arg("pd"), nb::arg("dm"), nb::arg("offset"),
           nb::arg("length"), nb::arg("access"))
      .def("create_ah", verb(&Adapter::create_ah), nb::arg("pd"), nb::arg("attr"))
      .def("query_ah", verb(&Adapter::query_ah), nb::arg("ah"))
      .def("destroy_ah", verb(&Adapter::destroy_ah), nb::arg("ah"))
      .def("alloc_xrcd", verb(&Adapter::alloc_xrcd))
      .def("dealloc_xrcd", verb(&Adapter::dealloc_xrcd), nb::arg("xrcd"));
}

}  // namespace softhca
