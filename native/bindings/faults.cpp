// Rules about packets, for fabrics and for links of real sockets.
#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>

#include <string>

#include "bindings/gil.hpp"
#include "bindings/module.hpp"
#include "driver/driver.hpp"
#include "faults/fault_set.hpp"

namespace softhca {
namespace {

nb::object call(const nb::object& callable, const PacketSight& packet) {
  return callable(bytes_of(packet.datagram), packet.route, packet.now_ns, packet.link,
                  packet.sending);
}

// Callables are called, and let go of, with the GIL: a link's thread has none.
struct Callable {
  explicit Callable(nb::object callable) : held(std::move(callable)) {}
  ~Callable() {
    const GilAcquired acquire;
    held.reset();
  }
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;
  nb::object held;
};

void set_predicate(FaultRule& rule, nb::object callable) {
  const auto kept = std::make_shared<Callable>(std::move(callable));
  rule.predicate = [kept](const PacketSight& packet) {
    const GilAcquired acquire;
    return nb::cast<bool>(nb::bool_(call(kept->held, packet)));
  };
}

void set_script(FaultRule& rule, nb::object callable) {
  const auto kept = std::make_shared<Callable>(std::move(callable));
  rule.script = [kept](const PacketSight& packet, std::vector<ScriptedDatagram>& out) {
    const GilAcquired acquire;
    const nb::object told = call(kept->held, packet);
    if (told.is_none()) return false;
    for (nb::handle one : told) {
      const auto [bytes, delay_ns] = nb::cast<std::tuple<nb::bytes, std::uint64_t>>(one);
      const ByteView view = view_of(bytes);
      out.push_back({{view.begin(), view.end()}, delay_ns});
    }
    return true;
  };
}

void set_opcodes(FaultRule& rule, const std::vector<std::uint8_t>& opcodes) {
  rule.match.opcodes.reset();
  for (const std::uint8_t opcode : opcodes) rule.match.opcodes.set(opcode);
}

// A link that judges may wait for the GIL, to ask a predicate: whoever wants the rules lets it go.
template <class Use>
auto with_rules(SharedFaults& shared, Use use) {
  const GilReleased release;
  const std::lock_guard lock(shared.mutex);
  return use(shared.rules);
}

void bind_shared(nb::module_& module) {
  nb::class_<SharedFaults>(module, "SharedFaults", "Rules of the links of real adapters.")
      .def(nb::init<>())
      .def(
          "add_fault",
          [](SharedFaults& self, const FaultRule& rule) {
            return with_rules(self, [&](FaultSet& rules) { return rules.add(rule); });
          },
          nb::arg("rule"))
      .def(
          "remove_fault",
          [](SharedFaults& self, std::uint32_t number) {
            with_rules(self, [=](FaultSet& rules) { rules.remove(number); });
          },
          nb::arg("number"))
      .def(
          "tally",
          [](SharedFaults& self, std::uint32_t number) {
            const FaultTally tally =
                with_rules(self, [=](FaultSet& rules) { return rules.tally(number); });
            return std::tuple(tally.matched, tally.struck);
          },
          nb::arg("number"))
      .def(
          "strikes",
          [](SharedFaults& self, std::uint32_t number) {
            return with_rules(self, [=](FaultSet& rules) { return rules.strikes(number); });
          },
          nb::arg("number"));
}

}  // namespace

void bind_faults(nb::module_& module) {
  nb::enum_<FaultAction>(module, "FaultAction", nb::is_arithmetic(), "What happens to a packet.")
      .value("DROP", FaultAction::DROP)
      .value("DUPLICATE", FaultAction::DUPLICATE)
      .value("DELAY", FaultAction::DELAY)
      .value("REORDER", FaultAction::REORDER)
      .value("CORRUPT", FaultAction::CORRUPT)
      .value("TRUNCATE", FaultAction::TRUNCATE)
      .value("MARK", FaultAction::MARK)
      .value("CNP", FaultAction::CNP)
      .value("ANSWER", FaultAction::ANSWER)
      .value("TELL", FaultAction::TELL)
      .value("SCRIPT", FaultAction::SCRIPT);
  nb::enum_<CorruptPart>(module, "CorruptPart", nb::is_arithmetic(), "Where damage goes.")
      .value("ANYWHERE", CorruptPart::ANYWHERE)
      .value("HEADERS", CorruptPart::HEADERS)
      .value("PAYLOAD", CorruptPart::PAYLOAD)
      .value("ICRC", CorruptPart::ICRC);
  nb::class_<FaultRule>(module, "FaultRule", "Which packets, when, and what happens to them.")
      .def(nb::init<>())
      .def_rw("name", &FaultRule::name)
      .def_rw("action", &FaultRule::action)
      .def_rw("probability", &FaultRule::probability)
      .def_rw("nth", &FaultRule::nth)
      .def_rw("every", &FaultRule::every)
      .def_rw("times", &FaultRule::times)
      .def_rw("delay_ns", &FaultRule::delay_ns)
      .def_rw("most_delay_ns", &FaultRule::most_delay_ns)
      .def_rw("count", &FaultRule::count)
      .def_rw("part", &FaultRule::part)
      .def_rw("mend_icrc", &FaultRule::mend_icrc)
      .def_rw("syndrome", &FaultRule::syndrome)
      .def_rw("seed", &FaultRule::seed)
      .def("set_opcodes", &set_opcodes, nb::arg("opcodes"))
      .def(
          "set_only",
          [](FaultRule& self, std::vector<std::uint64_t> only) {
            self.has_only = true;
            self.only = std::move(only);
          },
          nb::arg("only"))
      .def("set_predicate", &set_predicate, nb::arg("callable"))
      .def("set_script", &set_script, nb::arg("callable"))
      .def(
          "set_sources",
          [](FaultRule& self, std::vector<Gid> gids) { self.match.sources = std::move(gids); },
          nb::arg("gids"))
      .def(
          "set_destinations",
          [](FaultRule& self, std::vector<Gid> gids) { self.match.destinations = std::move(gids); },
          nb::arg("gids"))
      .def(
          "set_hosts",
          [](FaultRule& self, int source, int destination) {
            self.match.hosts = {source, destination};
          },
          nb::kw_only(), nb::arg("source"), nb::arg("destination"))
      .def(
          "set_numbers",
          [](FaultRule& self, std::int64_t qpn, std::uint32_t first_psn, std::uint32_t last_psn,
             std::uint32_t min_bytes, std::uint32_t max_bytes, std::uint64_t from_ns,
             std::uint64_t until_ns, int link, int direction) {
            self.match.qpn = qpn;
            self.match.first_psn = first_psn;
            self.match.last_psn = last_psn;
            self.match.min_bytes = min_bytes;
            self.match.max_bytes = max_bytes;
            self.match.from_ns = from_ns;
            self.match.until_ns = until_ns;
            self.match.link = link;
            self.match.direction = direction;
          },
          nb::kw_only(), nb::arg("qpn"), nb::arg("first_psn"), nb::arg("last_psn"),
          nb::arg("min_bytes"), nb::arg("max_bytes"), nb::arg("from_ns"), nb::arg("until_ns"),
          nb::arg("link"), nb::arg("direction"));
  bind_shared(module);
}

}  // namespace softhca
