// Programs that run under the filter, and the calls of theirs that Python answers.

#include <fcntl.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <cerrno>
#include <memory>

#include "bindings/gil.hpp"
#include "bindings/module.hpp"
#include "bindings/refusal.hpp"
#include "uabi/file_watch.hpp"
#include "uabi/launcher.hpp"
#include "uabi/listener.hpp"
#include "uabi/task_descriptor.hpp"
#include "uabi/task_memory.hpp"

namespace softhca {
namespace {

// More than any command needs; what a program asks for beyond it is refused unread.
constexpr std::size_t kLongestRead = 1 << 20;

const char* name_of(SystemCall call) {
  switch (call) {
    case SystemCall::open:
    case SystemCall::openat:
    case SystemCall::openat2:
      return "open";
    case SystemCall::ioctl:
      return "ioctl";
    case SystemCall::write:
      return "write";
    default:
      return "dup";
  }
}

nb::object read_memory(const Asked& asked, std::uint64_t address, std::size_t length) {
  if (length > kLongestRead) return nb::none();
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(length));
  if (bytes == nullptr) throw nb::python_error();
  nb::object result = nb::steal(bytes);
  const std::size_t got =
      length == 0 ? 0 : read_task(asked.call.task, address, PyBytes_AS_STRING(bytes), length);
  if (got != length) return nb::none();
  return result;
}

int add_descriptor(const Listener& listener, const Asked& asked, int descriptor, int at,
                   bool close_on_exec, bool is_answer) {
  const int number =
      listener.answers().add_descriptor(asked.call.id, descriptor, at, close_on_exec, is_answer);
  if (number < 0) raise_refusal(refuse(errno, "descriptor", 0, "cannot be given to the program"));
  return number;
}

// What the system gives and takes may be of any bytes.
std::string string_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::vector<std::string> strings_of(const std::vector<nb::bytes>& list) {
  std::vector<std::string> strings;
  for (const nb::bytes& one : list) strings.push_back(string_of(one));
  return strings;
}

void bind_known(nb::module_& module) {
  nb::class_<Known>(module, "Known", "What listeners recognise: paths, files and doorbells.")
      .def(nb::init<>())
      .def(
          "show",
          [](Known& self, std::string path, const nb::bytes& directory) {
            self.paths.show(std::move(path), string_of(directory));
          },
          nb::arg("path"), nb::arg("directory"))
      .def(
          "set_live_directories",
          [](Known& self, const std::vector<std::string>& names) {
            self.paths.set_live_directories(names);
          },
          nb::arg("names"))
      .def(
          "add_device",
          [](Known& self, std::string path, std::uint64_t device) {
            self.paths.add_device(std::move(path), device);
          },
          nb::arg("path"), nb::arg("device"))
      .def(
          "remove_path", [](Known& self, const std::string& path) { self.paths.remove(path); },
          nb::arg("path"))
      .def(
          "add_file",
          [](Known& self, std::uint64_t file_system, std::uint64_t inode, std::uint64_t device) {
            self.files.add(file_system, inode, device);
          },
          nb::arg("file_system"), nb::arg("inode"), nb::arg("device"))
      .def(
          "remove_file", [](Known& self, std::uint64_t inode) { self.files.remove(inode); },
          nb::arg("inode"))
      .def(
          "add_doorbell",
          [](Known& self, std::uint64_t inode, std::uint32_t qp_handle, Hca& hca,
             std::uint32_t qpn) {
            self.doorbells.add(inode, qp_handle, [&hca, qpn] {
              const Status status = hca.call_without_gil([&](Adapter& adapter, std::uint64_t now) {
                return adapter.ring_doorbell(qpn, now);
              });
              return status.error;
            });
          },
          nb::arg("inode"), nb::arg("qp_handle"), nb::arg("hca"), nb::arg("qpn"),
          "The adapter must stay until the doorbell is removed.")
      .def(
          "remove_doorbell",
          [](Known& self, std::uint64_t inode, std::uint32_t qp_handle) {
            self.doorbells.remove(inode, qp_handle);
          },
          nb::arg("inode"), nb::arg("qp_handle"))
      .def(
          "add_arm",
          [](Known& self, std::uint64_t inode, std::uint32_t cq_handle, Hca& hca,
             std::uint32_t cq) {
            self.arms.add(inode, cq_handle, [&hca, cq](bool solicited_only) {
              const Result<int> armed = hca.call_without_gil([&](Adapter& adapter) {
                const NotifyFlags flags = solicited_only ? kNotifySolicited : kNotifyNextComp;
                return adapter.req_notify_cq(cq, flags);
              });
              return armed.status.error;
            });
          },
          nb::arg("inode"), nb::arg("cq_handle"), nb::arg("hca"), nb::arg("cq"),
          "The adapter must stay until the queue is removed.")
      .def(
          "remove_arm",
          [](Known& self, std::uint64_t inode, std::uint32_t cq_handle) {
            self.arms.remove(inode, cq_handle);
          },
          nb::arg("inode"), nb::arg("cq_handle"))
      .def(
          "forget_ioctl", [](Known& self) { self.knows_ioctl.store(false); },
          "Commands by ioctl(2) are none.");
}

void bind_asked(nb::module_& module) {
  nb::class_<Asked>(module, "Asked", "A system call of a program that waits for our answer.")
      .def_prop_ro("call", [](const Asked& self) { return name_of(self.call.call); })
      .def_prop_ro(
          "process", [](const Asked& self) { return process_of(self.call.task); },
          "The process that the task is a thread of; -1 if it is gone.")
      .def_prop_ro("task", [](const Asked& self) { return self.call.task; })
      .def_prop_ro(
          "arguments",
          [](const Asked& self) {
            const auto& a = self.call.arguments;
            return nb::make_tuple(a[0], a[1], a[2], a[3], a[4], a[5]);
          },
          nb::sig("def arguments(self) -> tuple[int, int, int, int, int, int]"))
      .def_prop_ro("inode", [](const Asked& self) { return self.inode; })
      .def_prop_ro("open_flags", [](const Asked& self) { return open_flags(self.call); })
      .def_prop_ro("path",
                   [](const Asked& self) {
                     const std::string path = path_of(self.call);
                     return nb::bytes(path.data(), path.size());
                   })
      .def_prop_ro(
          "least_number",
          [](const Asked& self) {
            return self.call.call == SystemCall::fcntl
                       ? static_cast<std::uint32_t>(self.call.arguments[2])
                       : 0;
          },
          "Below which F_DUPFD shall give no number.")
      .def_prop_ro("closes_on_exec",
                   [](const Asked& self) {
                     return self.call.call == SystemCall::fcntl &&
                            self.call.arguments[1] == F_DUPFD_CLOEXEC;
                   })
      .def(
          "take_descriptor",
          [](const Asked& self) {
            const int number =
                take_descriptor(self.call.task, static_cast<int>(self.call.arguments[0]));
            if (number < 0) {
              raise_refusal(refuse(errno, "descriptor", 0, "cannot be taken from the program"));
            }
            return number;
          },
          "A copy of the descriptor that the call is about.")
      .def("read", &read_memory, nb::arg("address"), nb::arg("length"),
           nb::sig("def read(self, address: int, length: int) -> bytes | None"))
      .def(
          "write",
          [](const Asked& self, std::uint64_t address, nb::bytes bytes) {
            return write_task(self.call.task, address, bytes.c_str(), bytes.size());
          },
          nb::arg("address"), nb::arg("bytes"));
}

void bind_file_watch(nb::module_& module) {
  nb::class_<FileWatch>(module, "FileWatch", "Tells which files nobody else has open any more.")
      .def("__init__",
           [](FileWatch* self) {
             new (self) FileWatch();
             demand(self->open());
           })
      .def_prop_ro("fd", &FileWatch::fd)
      .def(
          "add", [](FileWatch& self, int descriptor) { return demand(self.add(descriptor)); },
          nb::arg("descriptor"))
      .def("remove", &FileWatch::remove, nb::arg("watch"))
      .def("take_closed", &FileWatch::take_closed);
}

void bind_listener(nb::module_& module) {
  nb::class_<Listener>(module, "Listener", "Answers the kernel's questions about programs.")
      .def(nb::init<int, std::shared_ptr<Known>>(), nb::arg("descriptor"), nb::arg("known"))
      .def("start", [](Listener& self) { demand(self.start()); })
      .def("stop", &Listener::stop, nb::call_guard<GilReleased>())
      .def("next", &Listener::next)
      .def("take_refused_task", &Listener::take_refused_task,
           "A task whose memory may not be reached; 0 if there is none that was not told of.")
      .def_prop_ro("fd", &Listener::fd)
      .def_prop_ro("is_over", &Listener::is_over)
      .def(
          "is_valid",
          [](const Listener& self, const Asked& asked) {
            return self.answers().is_valid(asked.call.id);
          },
          nb::arg("asked"))
      .def(
          "give",
          [](const Listener& self, const Asked& asked, std::int64_t value) {
            return self.answers().give(asked.call.id, value);
          },
          nb::arg("asked"), nb::arg("value"))
      .def(
          "refuse",
          [](const Listener& self, const Asked& asked, int error) {
            return self.answers().refuse(asked.call.id, error);
          },
          nb::arg("asked"), nb::arg("error"))
      .def(
          "proceed",
          [](const Listener& self, const Asked& asked) {
            return self.answers().proceed(asked.call.id);
          },
          nb::arg("asked"))
      .def("add_descriptor", &add_descriptor, nb::arg("asked"), nb::arg("descriptor"),
           nb::arg("at") = -1, nb::arg("close_on_exec") = true, nb::arg("is_answer") = false)
      .def(
          "answer_from_tree",
          [](Listener& self, const Asked& asked) { self.answer_from_tree(asked.call); },
          nb::arg("asked"));
}

}  // namespace

void bind_uabi_listener(nb::module_& module) {
  bind_known(module);
  bind_asked(module);
  bind_file_watch(module);
  bind_listener(module);
  module.def(
      "launch",
      [](const nb::bytes& path, const std::vector<nb::bytes>& arguments,
         const std::vector<nb::bytes>& environment,
         const std::vector<std::pair<std::uint32_t, std::uint32_t>>& numbers,
         const nb::bytes& directory, bool doorbells_are_written, int tracer,
         std::uint64_t descriptor_limit) {
        std::vector<DescriptorRange> ours;
        for (const auto& [first, last] : numbers) ours.push_back({first, last});
        const Launch request{
            string_of(path),         strings_of(arguments),
            strings_of(environment), std::move(ours),
            string_of(directory),    doorbells_are_written ? Doorbells::written : Doorbells::asked,
            descriptor_limit,        tracer};
        const Launched launched = demand([&] {
          const GilReleased release;
          return launch(request);
        }());
        return std::tuple(launched.process, launched.guardian, launched.guardian_socket,
                          launched.listener);
      },
      nb::arg("path"), nb::arg("arguments"), nb::arg("environment"), nb::arg("numbers"),
      nb::arg("directory"), nb::arg("doorbells_are_written") = false, nb::arg("tracer") = 0,
      nb::arg("descriptor_limit") = 0,
      "Starts a program under the filter. Returns its process, its guardian, the guardian's socket "
      "and the listener.");
}

}  // namespace softhca
