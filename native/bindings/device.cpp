#include <nanobind/stl/shared_ptr.h>

#include <limits>
#include <string>
#include <utility>

#include "bindings/gil.hpp"
#include "bindings/module.hpp"
#include "bindings/refusal.hpp"
#include "bindings/verb.hpp"

namespace softhca {
namespace {

// Every limit by its name: read for a query, and lowered by tests.
// clang-format off
#define SOFTHCA_LIMITS(X) \
  X(max_pd) X(max_mr) X(max_mw) X(max_fast_reg_page_list_len) X(max_cq) X(max_cqe) \
  X(max_qp) X(max_qp_wr) X(max_sge) X(max_inline_data) \
  X(max_srq) X(max_srq_wr) X(max_srq_sge) X(max_ah) \
  X(max_xrcd) X(max_qp_rd_atom) X(max_qp_init_rd_atom) X(max_mcast_grp) \
  X(max_mcast_qp_attach) X(max_mr_size) X(max_dm_size) X(max_msg_sz) X(max_pkeys) \
  X(gid_table_len)
// clang-format on

nb::dict dict_of(const Limits& limits) {
  nb::dict out;
#define SOFTHCA_TO_DICT(name) out[#name] = limits.name;
  SOFTHCA_LIMITS(SOFTHCA_TO_DICT)
#undef SOFTHCA_TO_DICT
  return out;
}

nb::dict limit_bits() {
  nb::dict out;
#define SOFTHCA_TO_DICT(name) out[#name] = std::numeric_limits<decltype(Limits::name)>::digits;
  SOFTHCA_LIMITS(SOFTHCA_TO_DICT)
#undef SOFTHCA_TO_DICT
  return out;
}

using LimitsDict = nb::typed<nb::dict, nb::str, nb::int_>;

Limits limits_of(const LimitsDict& given) {
  Limits limits;
#define SOFTHCA_FROM_DICT(name) \
  if (given.contains(#name)) limits.name = nb::cast<decltype(limits.name)>(given[#name]);
  SOFTHCA_LIMITS(SOFTHCA_FROM_DICT)
#undef SOFTHCA_FROM_DICT
  return limits;
}

// Settings of congestion control by their names; without any there is none.
CongestionSettings congestion_of(const LimitsDict& given) {
  CongestionSettings settings;
#define SOFTHCA_FROM_DICT(name) \
  if (given.contains(#name)) settings.name = nb::cast<decltype(settings.name)>(given[#name]);
  SOFTHCA_FROM_DICT(line_bits_per_second)
  SOFTHCA_FROM_DICT(least_bits_per_second)
  SOFTHCA_FROM_DICT(cnp_interval_ns)
  SOFTHCA_FROM_DICT(alpha_ns)
  SOFTHCA_FROM_DICT(increase_ns)
  SOFTHCA_FROM_DICT(increase_bytes)
  SOFTHCA_FROM_DICT(additive_bits_per_second)
  SOFTHCA_FROM_DICT(hyper_bits_per_second)
  SOFTHCA_FROM_DICT(fast_recovery)
  SOFTHCA_FROM_DICT(gain_shift)
#undef SOFTHCA_FROM_DICT
  return settings;
}

nb::dict dict_of(const Counters& counters) {
  nb::dict out;
#define SOFTHCA_TO_DICT(name) out[#name] = counters.name;
  SOFTHCA_COUNTERS(SOFTHCA_TO_DICT)
#undef SOFTHCA_TO_DICT
  return out;
}

nb::dict dict_of(const FaultCounters& counters) {
  nb::dict out;
  out["passed"] = counters.passed;
  out["dropped"] = counters.dropped;
  out["duplicated"] = counters.duplicated;
  out["reordered"] = counters.reordered;
  out["corrupted"] = counters.corrupted;
  return out;
}

// Drop, duplicate, reorder, corrupt.
using Rates = std::tuple<double, double, double, double>;

FaultRates rates_of(const Rates& rates) {
  const auto& [drop, duplicate, reorder, corrupt] = rates;
  return {.drop = drop, .duplicate = duplicate, .reorder = reorder, .corrupt = corrupt};
}

void demand_driver(const DriverError& error) {
  if (error.ok()) return;
  nb::object exception = nb::handle(PyExc_OSError)(error.error, error.message);
  PyErr_SetObject(PyExc_OSError, exception.ptr());
  throw nb::python_error();
}

Hca* open(const std::string& address, const std::string& capture_path, const Rates& send_faults,
          const Rates& receive_faults, std::uint64_t fault_seed, std::uint64_t seed,
          IcrcLevel icrc_level, std::uint8_t max_mtu, const LimitsDict& limits, bool windows_2a,
          bool trains, bool shortcut, std::shared_ptr<SharedFaults> fault_rules,
          const LimitsDict& congestion) {
  OpenOptions options;
  options.congestion = congestion_of(congestion);
  options.fault_rules = std::move(fault_rules);
  options.address = address;
  options.capture_path = capture_path;
  options.faults.send = rates_of(send_faults);
  options.faults.receive = rates_of(receive_faults);
  options.faults.seed = fault_seed;
  options.seed = seed;
  options.icrc_level = icrc_level;
  options.max_mtu = max_mtu;
  options.limits = limits_of(limits);
  options.windows_2a = windows_2a;
  options.trains = trains;
  options.shortcut = shortcut;
  OpenedDevice device;
  DriverError error;
  {
    const GilReleased release;
    error = open_device(options, device);
  }
  demand_driver(error);
  return new Hca(std::move(device));
}

void simulate(Hca* self, const std::vector<Gid>& gids, std::uint64_t seed, std::uint8_t active_mtu,
              std::uint64_t node_guid, const std::vector<std::uint16_t>& udp_source_ports,
              IcrcLevel icrc_level, const std::vector<std::uint16_t>& pkeys, bool retry_early,
              const LimitsDict& limits, bool windows_2a, const LimitsDict& congestion) {
  AdapterConfig config;
  config.congestion = congestion_of(congestion);
  config.node_guid = node_guid;
  config.seed = seed;
  config.gids = gids;
  config.udp_source_ports = udp_source_ports;
  config.active_mtu = active_mtu;
  config.icrc_level = icrc_level;
  config.pkeys = pkeys;
  config.retry_early = retry_early;
  config.limits = limits_of(limits);
  config.windows_2a = windows_2a;
  new (self) Hca(std::move(config));
}

// Reads something of the adapter that cannot be refused.
template <class Read>
auto read(Hca& hca, Read&& read_one) {
  return demand(hca.call([&](Adapter& adapter) { return Result(read_one(adapter)); }));
}

std::optional<std::tuple<EventType, std::uint32_t>> event_of(
    Result<std::optional<AsyncEvent>> taken) {
  const std::optional<AsyncEvent> event = demand(std::move(taken));
  if (!event) return std::nullopt;
  return std::tuple(event->type, event->object);
}

nb::dict link_counters(Hca& hca) {
  nb::dict out;
  demand(hca.may_await_work("link_counters"));
  const std::optional<DriverCounters> taken = demand(hca.driver_counters());
  if (!taken) return out;
  const DriverCounters& counters = *taken;
  out["sent"] = counters.udp.sent;
  out["received"] = counters.udp.received;
  out["send_refused"] = counters.udp.send_refused;
  out["send_blocked"] = counters.udp.send_blocked;
  out["trains_sent"] = counters.udp.trains_sent;
  out["receive_overflows"] = counters.receive_overflows;
  out["captured_pkts"] = counters.captured_pkts;
  out["capture_failure"] = counters.capture_failure.message;
  out["sent_faults"] = dict_of(counters.sent_faults);
  out["received_faults"] = dict_of(counters.received_faults);
  return out;
}

void bind_opening(HcaClass& hca) {
  hca.def_static("limit_bits", &limit_bits, nb::sig("def limit_bits() -> dict[str, int]"),
                 "How many bits each limit has, by its name.");
  hca.def("__init__", &simulate, nb::kw_only(), nb::arg("gids"), nb::arg("seed"),
          nb::arg("active_mtu"), nb::arg("node_guid"), nb::arg("udp_source_ports"),
          nb::arg("icrc_level"), nb::arg("pkeys"), nb::arg("retry_early"), nb::arg("limits"),
          nb::arg("windows_2a") = false, nb::arg("congestion") = LimitsDict(),
          "An adapter without a driver: the caller moves its packets and its time.")
      .def_static("open", &open, nb::kw_only(), nb::arg("address"), nb::arg("capture_path"),
                  nb::arg("send_faults"), nb::arg("receive_faults"), nb::arg("fault_seed"),
                  nb::arg("seed"), nb::arg("icrc_level"), nb::arg("max_mtu"), nb::arg("limits"),
                  nb::arg("windows_2a") = false, nb::arg("trains") = true,
                  nb::arg("shortcut") = true, nb::arg("fault_rules") = nb::none(),
                  nb::arg("congestion") = LimitsDict(),
                  "An adapter on the wire, with a driver of its own.")
      .def("may_close", [](Hca& self) { demand(self.may_await_work("close")); })
      .def("close", &Hca::close);
}

void bind_events(HcaClass& hca) {
  hca.def("next_async_event", [](Hca& self) { return event_of(self.next_async_event()); })
      .def_prop_ro("clock_ns", &Hca::clock_ns)
      .def_prop_ro("is_simulated", &Hca::is_simulated)
      .def_prop_ro("async_event_fd", &Hca::async_event_fd);
}

}  // namespace

void bind_device(HcaClass& hca) {
  bind_opening(hca);
  bind_events(hca);
  hca.def_prop_ro("gids",
                  [](Hca& self) { return read(self, [](Adapter& a) { return a.config().gids; }); })
      .def_prop_ro(
          "pkeys",
          [](Hca& self) { return read(self, [](Adapter& a) { return a.config().pkeys; }); })
      .def_prop_ro(
          "node_guid",
          [](Hca& self) { return read(self, [](Adapter& a) { return a.config().node_guid; }); })
      .def(
          "limits",
          [](Hca& self) {
            return dict_of(read(self, [](Adapter& a) { return a.config().limits; }));
          },
          nb::sig("def limits(self) -> dict[str, int]"))
      .def_prop_ro("identity", &Hca::identity)
      .def_prop_ro(
          "windows_2a",
          [](Hca& self) { return read(self, [](Adapter& a) { return a.config().windows_2a; }); })
      .def("query_port",
           [](Hca& self) { return read(self, [](Adapter& a) { return a.query_port(); }); })
      .def(
          "counters",
          [](Hca& self) { return dict_of(read(self, [](Adapter& a) { return a.counters(); })); },
          nb::sig("def counters(self) -> dict[str, int]"))
      .def(
          "qp_counters",
          [](Hca& self, std::uint32_t qpn) {
            return dict_of(demand(self.call([=](Adapter& a) { return a.qp_counters(qpn); })));
          },
          nb::arg("qpn"), nb::sig("def qp_counters(self, qpn: int) -> dict[str, int]"))
      .def("link_counters", &link_counters,
           nb::sig("def link_counters(self) -> dict[str, object]"));
}

}  // namespace softhca
