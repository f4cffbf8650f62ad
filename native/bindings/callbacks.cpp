// Completion queues that the core polls: each completion goes to the callback of its work request.

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <optional>

#include "bindings/completion_type.hpp"
#include "bindings/completions.hpp"
#include "bindings/gil.hpp"
#include "bindings/module.hpp"
#include "bindings/refusal.hpp"
#include "driver/completion_work.hpp"

namespace softhca {
namespace {

constexpr std::uint32_t kNextCompOrMissed = kNotifyNextComp | kNotifyReportMissedEvents;

struct MethodNames {
  PyObject* done = PyUnicode_InternFromString("done");
  PyObject* without_cqe = PyUnicode_InternFromString("_without_cqe");
  PyObject* callback_failed = PyUnicode_InternFromString("_callback_failed");
};

const MethodNames& names() {
  static const MethodNames all;
  return all;
}

// Hands completions of one queue to their callbacks, with the GIL held. The queue object hears of
// callbacks that raise. It returns None if that is all, an exception that is to be raised to the
// caller once the batch is done, or what sys.unraisablehook shall say that it happened in.
class Deliverer {
 public:
  Deliverer(Hca& hca, PolledBatch& batch, nb::handle cq, nb::handle wc_class)
      : hca_(hca), batch_(batch), cq_(cq), wc_class_(wc_class) {}

  // The first `count` of the batch.
  void deliver(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      try {
        deliver(batch_.completions[i]);
      } catch (nb::python_error& error) {  // No memory for the completion.
        error.restore();
        report_unraisable("delivering a completion");
      }
    }
    batch_.destroyed.clear();
  }

  // The queue was destroyed since the first `count` were polled. Queue pairs that completed in it
  // went before, and have told theirs; receives of shared queues have not.
  static void forsake(Hca& hca, const PolledBatch& batch, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t number = batch.completions[i].cqe;
      if (number == 0) continue;
      const CqeTable::Posted posted = hca.cqes.take(number, false);
      if (posted.cqe.is_valid()) tell_forgotten(posted.cqe);
    }
  }

  bool must_raise() const { return pending_.is_valid(); }
  void raise() {
    PyErr_SetObject(nb::handle(pending_.type()).ptr(), pending_.ptr());
    throw nb::python_error();
  }

 private:
  void deliver(const Completion& completion) {
    CqeTable::Posted posted;
    if (completion.cqe != 0) {
      posted = hca_.cqes.take(completion.cqe, completion.status == WcStatus::SUCCESS);
      // Its queue pair was destroyed since it was polled, and has told it.
      if (!posted.cqe.is_valid()) return;
    }
    if (batch_.is_of_destroyed(completion)) {
      if (posted.cqe.is_valid()) tell_forgotten(posted.cqe);  // A receive of an SRQ.
      return;
    }
    const Kept wc = completion_object(wc_class_, completion, posted.cqe);
    const Kept result = posted.cqe.is_valid() ? call_method(names().done, posted.cqe, cq_, wc)
                                              : call_method(names().without_cqe, cq_, wc);
    if (!result.is_valid()) failed(wc, posted.wr);
  }

  void failed(nb::handle wc, nb::handle wr) {
    nb::python_error error;
    const Kept told = call_method(names().callback_failed, cq_, error.value(), wc,
                                  wr.is_valid() ? wr : nb::handle(Py_None));
    if (!told.is_valid()) {
      report_unraisable("a completion callback that raised");
    } else if (PyExceptionInstance_Check(told.ptr())) {
      if (!pending_.is_valid()) pending_ = told;
    } else if (!told.is_none()) {
      error.restore();
      report_unraisable(told);
    }
  }

  Hca& hca_;
  PolledBatch& batch_;
  nb::handle cq_;
  nb::handle wc_class_;
  nb::object pending_;
};

// ib_process_cq_direct(): returns how many completions were handled.
std::uint64_t process(Hca& hca, std::uint32_t cq, std::uint64_t budget, nb::object cq_object,
                      nb::type_object wc_class) {
  PolledBatches::Entry entry(hca.batches);
  Deliverer deliverer(hca, entry.batch(), cq_object, wc_class);
  std::uint64_t handled = 0;
  while (handled < budget) {
    const std::size_t wanted = std::min<std::uint64_t>(kCallbackBatch, budget - handled);
    const std::span<Completion> out(entry.batch().completions.data(), wanted);
    // The first poll makes progress; what that brought in is waiting then.
    const Result<std::size_t> polled = handled == 0 ? hca.poll(cq, out) : hca.poll_waiting(cq, out);
    if (!polled.ok() && handled != 0) break;  // A callback destroyed it.
    const std::size_t count = demand(polled);
    deliverer.deliver(count);
    handled += count;
    if (deliverer.must_raise()) deliverer.raise();
    if (count < wanted) break;
  }
  return handled;
}

// Threads of Python run this, for as long as there is work for them.
class Server {
 public:
  Server(Hca& hca, CompletionWork& work, std::uint32_t budget, nb::object queue_of,
         nb::object start_thread, nb::type_object wc_class)
      : hca_(hca),
        work_(work),
        budget_(budget),
        queue_of_(std::move(queue_of)),
        start_thread_(std::move(start_thread)),
        wc_class_(std::move(wc_class)) {}

  // Without the GIL.
  void run() {
    for (CompletionWork::Job job = work_.take(); job.cq != 0; job = work_.take()) {
      if (job.need_thread) start_another();
      work_.give_back(job.cq, serve(job.cq));
    }
  }

  // One queue of those that wait; false if none does. Without the GIL.
  bool run_one() {
    const CompletionWork::Job job = work_.try_take();
    if (job.cq == 0) return false;
    work_.give_back(job.cq, serve(job.cq));
    return true;
  }

 private:
  void start_another() {
    const GilAcquired acquired;
    if (!call_python(start_thread_).is_valid()) {
      work_.thread_failed();
      report_unraisable("starting a thread for completion callbacks");
    }
  }

  // True: the queue has more, or may have.
  bool serve(std::uint32_t cq) {
    PolledBatches::Entry entry(hca_.batches);
    const Result<std::size_t> polled = hca_.call_without_gil(
        [&](Adapter& adapter) { return adapter.poll_cq(cq, entry.batch().completions); });
    if (!polled.ok()) return false;
    if (polled.value > 0 && !deliver_from(cq, entry.batch(), polled.value)) return true;
    const Result<int> armed = hca_.call_without_gil(
        [&](Adapter& adapter) { return adapter.req_notify_cq(cq, kNextCompOrMissed); });
    return armed.ok() && armed.value > 0;
  }

  // Begins with what `batch` holds. True if the queue was empty before the budget was.
  bool deliver_from(std::uint32_t cq, PolledBatch& batch, std::size_t count) {
    const GilAcquired acquired;
    const Kept queue = call_python(queue_of_, nb::int_(cq));
    if (!queue.is_valid()) report_unraisable("looking for a completion queue");
    if (!queue.is_valid() || queue.is_none()) {
      Deliverer::forsake(hca_, batch, count);
      return true;
    }
    Deliverer deliverer(hca_, batch, queue, wc_class_);
    std::uint32_t handled = 0;
    for (;;) {
      deliverer.deliver(count);
      handled += static_cast<std::uint32_t>(count);
      if (count < kCallbackBatch) return true;
      if (handled >= budget_) return false;
      const std::size_t wanted = std::min<std::size_t>(kCallbackBatch, budget_ - handled);
      const Result<std::size_t> polled =
          hca_.poll_waiting(cq, std::span(batch.completions).first(wanted));
      if (!polled.ok() || polled.value == 0) return true;
      count = polled.value;
    }
  }

  Hca& hca_;
  CompletionWork& work_;
  const std::uint32_t budget_;
  const nb::object queue_of_;
  const nb::object start_thread_;
  const nb::type_object wc_class_;
};

// Looks at signals now and then, so that Ctrl-C ends a wait for a callback that does not return.
void wait_for_others(CompletionWork& work, std::uint32_t cq) {
  const auto waited = [&] {
    const GilReleased released;
    return work.wait_for_others(cq, std::chrono::milliseconds(50));
  };
  while (!waited()) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace

void bind_callbacks(nb::module_& module, HcaClass& hca) {
  module.def(
      "report_unraisable",
      [](nb::handle error, nb::handle where) {
        PyErr_SetObject(error.type().ptr(), error.ptr());
        PyErr_WriteUnraisable(where.ptr());
      },
      nb::arg("error"), nb::arg("where"), "Hands an exception to sys.unraisablehook.",
      nb::sig("def report_unraisable(error: BaseException, where: object) -> None"));
  nb::class_<CompletionWork>(module, "CompletionWork", "Queues that wait to be processed.")
      .def("add", &CompletionWork::add, nb::arg("cq"))
      .def("remove", &CompletionWork::remove, nb::arg("cq"))
      .def("wait_for_others", &wait_for_others, nb::arg("cq"))
      .def("begin_wait", &CompletionWork::begin_wait, nb::arg("cq"))
      .def("is_given_back", &CompletionWork::is_given_back, nb::arg("cq"))
      .def("end_wait", &CompletionWork::end_wait, nb::arg("cq"))
      .def("would_wait_for_caller", &CompletionWork::would_wait_for_caller, nb::arg("cq"))
      .def("claim_first_thread", &CompletionWork::claim_first_thread)
      .def("thread_failed", &CompletionWork::thread_failed)
      .def("stop", &CompletionWork::stop);
  hca.def("process_cq", &process, nb::arg("cq"), nb::arg("budget"), nb::arg("cq_object"),
          nb::arg("wc_class"))
      .def(
          "serve",
          [](Hca& self, CompletionWork& work, std::uint32_t budget, nb::object queue_of,
             nb::object start_thread, nb::type_object wc_class, bool once) {
            Server server(self, work, budget, std::move(queue_of), std::move(start_thread),
                          std::move(wc_class));
            const GilReleased released;
            if (once) return server.run_one();
            server.run();
            return false;
          },
          nb::arg("work"), nb::arg("budget"), nb::arg("queue_of"), nb::arg("start_thread"),
          nb::arg("wc_class"), nb::arg("once") = false);
}

}  // namespace softhca
