// Channels of invalidation notices, and the watches behind regions that have them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "bindings/gil.hpp"
#include "bindings/module.hpp"
#include "bindings/refusal.hpp"
#include "driver/invalidation/handles.hpp"

namespace softhca {
namespace {

using WithoutGil = nb::call_guard<GilReleased>;

// Cookie, kind, address, length, offset, count, exact.
using EventFields = std::tuple<std::uint64_t, std::uint8_t, std::uint64_t, std::uint64_t,
                               std::uint64_t, std::uint64_t, bool>;

ChannelHandle* open_channel() {
  auto opened = [] {
    const GilReleased release;
    return ChannelHandle::open();
  }();
  return demand(std::move(opened)).release();
}

std::vector<EventFields> take(ChannelHandle& channel, std::size_t most) {
  std::vector<InvalidationEvent> events(most);
  const std::size_t count = demand(channel.take(events));
  std::vector<EventFields> taken;
  taken.reserve(count);
  for (std::size_t at = 0; at < count; ++at) {
    const InvalidationEvent& event = events[at];
    taken.emplace_back(event.cookie, static_cast<std::uint8_t>(event.kind), event.address,
                       event.length, event.offset, event.count, event.exact);
  }
  return taken;
}

WatchHandle* open_watch(ChannelHandle& channel, std::uint64_t address, std::uint64_t length,
                        std::uint64_t cookie) {
  auto opened = [&] {
    const GilReleased release;
    return WatchHandle::open(channel, address, length, cookie);
  }();
  return demand(std::move(opened)).release();
}

MrInfo reg_watched_mr(Hca& hca, std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                      std::uint64_t iova, std::uint32_t access, const WatchHandle& watch) {
  return demand(hca.call([&](Adapter& adapter) {
    return adapter.reg_watched_mr(pd, address, length, iova, access, watch.range());
  }));
}

}  // namespace

void bind_invalidation(nb::module_& module, HcaClass& hca) {
  nb::class_<ChannelHandle>(module, "InvalidationChannel", "Where the notices of regions gather.")
      .def_static("open", &open_channel, nb::rv_policy::take_ownership)
      .def_prop_ro("fd", &ChannelHandle::fd)
      .def_prop_ro("generation_fd", &ChannelHandle::generation_fd)
      .def_prop_ro("generation", &ChannelHandle::generation)
      .def("take", &take, nb::arg("most"),
           "The oldest events: cookie, kind, address, length, offset, count, exact.")
      .def_prop_ro("lost", [](ChannelHandle& self) { return demand(self.lost()); })
      .def("shut", &ChannelHandle::shut, WithoutGil());
  nb::class_<WatchHandle>(module, "Watch", "What watches the memory of one region.")
      .def_static("open", &open_watch, nb::arg("channel"), nb::arg("address"), nb::arg("length"),
                  nb::arg("cookie"), nb::rv_policy::take_ownership)
      .def_prop_ro("raised", &WatchHandle::raised)
      .def("close", &WatchHandle::close, WithoutGil());
  hca.def("reg_watched_mr", &reg_watched_mr, nb::arg("pd"), nb::arg("address"), nb::arg("length"),
          nb::arg("iova"), nb::arg("access"), nb::arg("watch"));
}

}  // namespace softhca
