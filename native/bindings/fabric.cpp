// The fabric, and how a simulated adapter joins it.
#include "fabric/fabric.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bindings/module.hpp"
#include "bindings/refusal.hpp"

namespace softhca {
namespace {

// Events between two looks at signals.
constexpr std::uint64_t kInterval = 50'000;

struct FabricHandle {
  FabricHandle(const FabricSettings& settings, std::shared_ptr<VirtualClock> shared)
      : clock(shared), fabric(settings, std::move(shared)) {}

  std::shared_ptr<VirtualClock> clock;
  Fabric fabric;
};

void init(FabricHandle* self, std::uint64_t seed, const LinkShape& link, std::size_t trace_bytes,
          std::uint64_t jitter_ns, std::uint64_t ack_delay_ns) {
  new (self) FabricHandle({.seed = seed,
                           .link = link,
                           .trace_bytes = trace_bytes,
                           .jitter_ns = jitter_ns,
                           .ack_delay_ns = ack_delay_ns},
                          std::make_shared<VirtualClock>());
}

std::uint32_t add_host(FabricHandle& self, Hca& hca) {
  const std::shared_ptr<SimulatedSide> side = hca.simulated();
  if (!side) raise_refusal(refuse(EINVAL, "device", 0, "is of a real network"));
  const std::shared_ptr<GuardedAdapter> guarded = hca.guarded();
  side->clock = self.clock;
  if (const int error = side->bell.open(); error != 0) {
    raise_refusal(refuse(error, "device", 0, "cannot have a descriptor"));
  }
  FabricPort port;
  port.adapter = &guarded->adapter;
  port.mutex = &guarded->mutex;
  port.touched = &side->touched;
  port.closed = &side->closed;
  port.notify = [side, guarded](Adapter& adapter) { side->notify(adapter); };
  return self.fabric.add_host(std::move(port));
}

Fabric::Stop run(FabricHandle& self, std::uint64_t until_ns, bool notices, std::uint64_t events) {
  if (events != 0) return self.fabric.run(until_ns, notices, events);
  // With the GIL: predicates are called, and one program goes at a time anyhow.
  for (;;) {
    const Fabric::Stop stop = self.fabric.run(until_ns, notices, kInterval);
    if (stop != Fabric::Stop::INTERVAL) return stop;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::list records(FabricHandle& self, std::uint64_t first, std::uint64_t count) {
  nb::list out;
  Trace& trace = self.fabric.trace();
  std::uint64_t number = trace.forgotten();
  for (const Trace::Page& page : trace.pages()) {
    if (first >= number + page.records.size()) {
      number += page.records.size();
      continue;
    }
    std::size_t sent = 0;
    for (const Record& record : page.records) {
      const bool has_route = record.kind == RecordKind::SENT;
      const std::size_t route = sent;
      sent += has_route;
      if (number++ < first) continue;
      if (count-- == 0) return out;
      out.append(nb::make_tuple(record.at_ns, static_cast<std::uint32_t>(record.kind), record.host,
                                record.qpn, record.packet, record.a, record.b, record.number,
                                trace.text(record.text),
                                bytes_of({page.bytes.data() + record.at, record.bytes}),
                                has_route ? nb::cast(page.routes[route]) : nb::none()));
    }
  }
  return out;
}

void note(FabricHandle& self, std::uint32_t host, const std::string& text) {
  Trace& trace = self.fabric.trace();
  trace.add({.at_ns = self.fabric.now_ns(),
             .kind = RecordKind::NOTE,
             .host = host,
             .text = trace.on() ? trace.word(text) : 0});
}

nb::dict counters(FabricHandle& self) {
  nb::dict out;
  const FabricCounters& counted = self.fabric.counters();
  out["packets"] = counted.packets;
  out["delivered"] = counted.delivered;
  out["lost"] = counted.lost;
  out["events"] = counted.events;
  return out;
}

nb::dict lane_counters(FabricHandle& self, std::uint32_t number) {
  nb::dict out;
  const Topology& topology = self.fabric.topology();
  const Lane& lane = topology.lanes.at(number);
  out["packets"] = lane.packets;
  out["bytes"] = lane.bytes;
  out["overflows"] = lane.overflows;
  out["marked"] = lane.marked;
  out["queued_bytes"] = topology.queued_bytes(lane, self.fabric.now_ns());
  out["most_queued_bytes"] = lane.most_queued_bytes;
  return out;
}

void bind_shape(nb::module_& module) {
  nb::class_<LinkShape>(module, "LinkShape", "What a link is like, in both directions.")
      .def(nb::init<>())
      .def_rw("bits_per_second", &LinkShape::bits_per_second)
      .def_rw("latency_ns", &LinkShape::latency_ns)
      .def_rw("queue_bytes", &LinkShape::queue_bytes)
      .def_rw("mtu_bytes", &LinkShape::mtu_bytes)
      .def_rw("mark_from_bytes", &LinkShape::mark_from_bytes)
      .def_rw("mark_all_bytes", &LinkShape::mark_all_bytes)
      .def_rw("mark_probability", &LinkShape::mark_probability);
  nb::enum_<Fabric::Stop>(module, "FabricStop", "Why the loop stopped.")
      .value("TIME", Fabric::Stop::TIME)
      .value("NOTICE", Fabric::Stop::NOTICE)
      .value("QUIET", Fabric::Stop::QUIET)
      .value("CALL", Fabric::Stop::CALL)
      .value("TOLD", Fabric::Stop::TOLD)
      .value("INTERVAL", Fabric::Stop::INTERVAL);
}

}  // namespace

void bind_fabric(nb::module_& module, HcaClass& hca) {
  bind_shape(module);
  hca.def("set_idle", &Hca::set_idle, nb::arg("idle").none(),
          "Who is called, in a simulation, when a poll finds nothing.");
  nb::class_<FabricHandle> fabric(module, "Fabric",
                                  "Adapters, links and switches in virtual time.");
  fabric
      .def("__init__", &init, nb::kw_only(), nb::arg("seed"), nb::arg("link"),
           nb::arg("trace_bytes"), nb::arg("jitter_ns"), nb::arg("ack_delay_ns") = 0)
      .def("add_host", &add_host, nb::arg("hca"))
      .def("add_switch", [](FabricHandle& self) { return self.fabric.add_switch(); })
      .def(
          "node_of_host",
          [](FabricHandle& self, std::uint32_t host) { return self.fabric.node_of_host(host); },
          nb::arg("host"))
      .def(
          "connect",
          [](FabricHandle& self, std::uint32_t a, std::uint32_t b, const LinkShape& shape) {
            return self.fabric.connect(a, b, shape);
          },
          nb::arg("a"), nb::arg("b"), nb::arg("shape"))
      .def(
          "set_link_up",
          [](FabricHandle& self, std::uint32_t link, bool up) {
            self.fabric.set_link_up(link, up);
          },
          nb::arg("link"), nb::arg("up"))
      .def("run", &run, nb::arg("until_ns") = kNever, nb::arg("notices") = true,
           nb::arg("events") = 0)
      .def(
          "call_at",
          [](FabricHandle& self, std::uint64_t at_ns, std::uint64_t number) {
            self.fabric.call_at(at_ns, number);
          },
          nb::arg("at_ns"), nb::arg("number"))
      .def_prop_ro("called", [](FabricHandle& self) { return self.fabric.called(); })
      .def("take_told", [](FabricHandle& self) { return self.fabric.take_told(); })
      .def("next_ns",
           [](FabricHandle& self) -> std::optional<std::uint64_t> {
             const std::uint64_t next = self.fabric.next_ns();
             return next == kNever ? std::nullopt : std::optional(next);
           })
      .def_prop_ro("now_ns", [](FabricHandle& self) { return self.fabric.now_ns(); })
      .def_prop_ro("flying", [](FabricHandle& self) { return self.fabric.flying(); })
      .def(
          "inject",
          [](FabricHandle& self, const Route& route, const nb::bytes& datagram,
             std::uint64_t delay_ns) { self.fabric.inject(route, view_of(datagram), delay_ns); },
          nb::arg("route"), nb::arg("datagram"), nb::arg("delay_ns") = 0);
  fabric
      .def(
          "add_fault",
          [](FabricHandle& self, const FaultRule& rule) { return self.fabric.faults().add(rule); },
          nb::arg("rule"))
      .def(
          "remove_fault",
          [](FabricHandle& self, std::uint32_t number) { self.fabric.faults().remove(number); },
          nb::arg("number"))
      .def(
          "tally",
          [](FabricHandle& self, std::uint32_t number) {
            const FaultTally tally = self.fabric.faults().tally(number);
            return std::tuple(tally.matched, tally.struck);
          },
          nb::arg("number"))
      .def(
          "strikes",
          [](FabricHandle& self, std::uint32_t number) {
            return self.fabric.faults().strikes(number);
          },
          nb::arg("number"))
      .def("records", &records, nb::arg("first"), nb::arg("count"),
           nb::sig("def records(self, first: int, count: int) -> "
                   "list[tuple[int, int, int, int, int, int, int, int, str, bytes, Route | None]]"))
      .def("note", &note, nb::arg("host"), nb::arg("text"))
      .def_prop_ro("record_count", [](FabricHandle& self) { return self.fabric.trace().count(); })
      .def_prop_ro("forgotten", [](FabricHandle& self) { return self.fabric.trace().forgotten(); })
      .def_prop_ro("digest", [](FabricHandle& self) { return self.fabric.trace().digest(); })
      .def("counters", &counters, nb::sig("def counters(self) -> dict[str, int]"))
      .def("lane_counters", &lane_counters, nb::arg("lane"),
           nb::sig("def lane_counters(self, lane: int) -> dict[str, int]"));
}

}  // namespace softhca
