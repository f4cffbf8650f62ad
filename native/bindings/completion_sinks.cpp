// Where completion events go: channels, and the work of threads.

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "bindings/module.hpp"
#include "bindings/refusal.hpp"
#include "driver/completion_channel.hpp"
#include "driver/completion_work.hpp"

namespace softhca {

void bind_completion_sinks(nb::module_& module, HcaClass& hca) {
  nb::class_<CompletionChannel>(module, "CompletionChannel",
                                "Events of armed CQs, with a descriptor.")
      .def_prop_ro("fd", &CompletionChannel::fd)
      .def("pop", &CompletionChannel::pop, "The oldest event's CQ; 0 if there is none.")
      .def("put_back", &CompletionChannel::put_back, nb::arg("cq"))
      .def("forget", &CompletionChannel::forget, nb::arg("cq"))
      .def("close", &CompletionChannel::close)
      .def_prop_ro("closed", &CompletionChannel::closed);
  hca.def(
         "create_channel",
         [](Hca& self) {
           const auto channel = std::make_shared<CompletionChannel>();
           if (const int error = channel->open(); error != 0) {
             raise_refusal(refuse(error, "channel", 0, "cannot have a descriptor"));
           }
           return std::tuple(channel, self.completion_sinks().add(channel));
         },
         "A channel, and the number that attach_cq() takes.")
      .def(
          "wait_for",
          [](Hca& self, const std::shared_ptr<CompletionChannel>& channel, double seconds) {
            // A signal that came before the wait had begun did not end it, and is heeded then.
            constexpr double kLongest = 1.0;
            const std::uint64_t deadline_ns =
                monotonic_ns() +
                static_cast<std::uint64_t>(std::clamp(seconds, 0.0, kLongest) * 1e9);
            const bool waited = self.wait_for(*channel, deadline_ns);
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            return waited;
          },
          nb::arg("channel"), nb::arg("seconds"),
          "Waits for an event of the channel, for a second at most; False if that takes another "
          "way.")
      .def(
          "create_work",
          [](Hca& self, std::uint32_t max_threads) {
            const auto work = std::make_shared<CompletionWork>(max_threads);
            return std::tuple(work, self.completion_sinks().add(work));
          },
          nb::arg("max_threads"))
      .def(
          "remove_sink",
          [](Hca& self, std::uint32_t number) { self.completion_sinks().remove(number); },
          nb::arg("number"))
      .def(
          "attach_cq",
          [](Hca& self, std::uint32_t cq, std::uint32_t number) {
            demand(self.call([&](Adapter& adapter) { return adapter.attach_cq(cq, number); }));
          },
          nb::arg("cq"), nb::arg("number"));
}

}  // namespace softhca
