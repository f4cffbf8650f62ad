// What serves unmodified programs: their memory, and queues that they map.

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bindings/gil.hpp"
#include "bindings/module.hpp"
#include "bindings/refusal.hpp"
#include "bindings/verb.hpp"
#include "uabi/doorbell_watch.hpp"
#include "uabi/event_pipe.hpp"
#include "uabi/listener.hpp"
#include "uabi/mapped_queues.hpp"
#include "uabi/process_memory.hpp"
#include "uabi/rxe_layout.hpp"
#include "uabi/shared_mapping.hpp"

namespace softhca {
namespace {

using Memory = std::shared_ptr<ProcessMemory>;
using Ring = std::shared_ptr<MappedRing>;

constexpr std::uint64_t kDoorbellsAt = RingFile::kDoorbellsAt;

// More than any structure of the user ABI; a length is a program's word.
constexpr std::size_t kMaxReadBytes = 1u << 24;

std::optional<nb::bytes> read_memory(ProcessMemory& self, std::uint64_t address,
                                     std::size_t length) {
  if (length > kMaxReadBytes) return std::nullopt;
  std::vector<std::uint8_t> bytes(length);
  if (!self.copy_in(address, bytes)) return std::nullopt;
  return bytes_of(bytes);
}

Ring make_ring(std::uint32_t element_bytes, std::uint32_t elements,
               const std::optional<std::shared_ptr<RingFile>>& file) {
  return demand(MappedRing::make(file ? *file : demand(RingFile::make()), element_bytes, elements));
}

Status check_element(const MappedRing& ring, const char* argument, std::size_t header) {
  if (ring.element_bytes() >= header) return Status::success();
  return refuse(EINVAL, argument, ring.element_bytes(), "has elements that are too small");
}

Status map_qp(Adapter& adapter, std::uint32_t qpn, const Ring& sq, const Ring& rq) {
  QpInit init;
  if (const Result<QpAttr> attr = adapter.query_qp(qpn, init); !attr.ok()) return attr.status;
  if (sq->mask() > init.cap.max_send_wr) {
    return refuse(EINVAL, "sq", sq->elements(), "has more than max_send_wr + 1 elements");
  }
  Status status = check_element(*sq, "sq", kSendElementHeader);
  if (status.ok() && rq) status = check_element(*rq, "rq", kReceiveElementHeader);
  if (!status.ok()) return status;
  return adapter.feed_qp(qpn, std::make_shared<MappedSendQueue>(sq, init.type == QpType::UD),
                         rq ? std::make_shared<MappedReceiveQueue>(rq) : nullptr);
}

Status map_srq(Adapter& adapter, std::uint32_t srq, const Ring& ring) {
  if (Status status = check_element(*ring, "ring", kReceiveElementHeader); !status.ok()) {
    return status;
  }
  return adapter.feed_srq(srq, std::make_shared<MappedReceiveQueue>(ring));
}

void bind_objects(nb::module_& module) {
  nb::class_<ProcessMemory>(module, "ProcessMemory", "The memory of another process.")
      .def_static(
          "open",
          [](int pid, int task) {
            return demand(ProcessMemory::open(pid, task != 0 ? task : pid));
          },
          nb::arg("pid"), nb::arg("task") = 0, "By a thread that runs, or by the first one.")
      .def("read", &read_memory, nb::arg("address"), nb::arg("length"),
           "None if any of it is not there.")
      .def(
          "write",
          [](ProcessMemory& self, std::uint64_t address, const nb::bytes& bytes) {
            return self.copy_out(address, view_of(bytes));
          },
          nb::arg("address"), nb::arg("bytes"), "False if any of it is not there.")
      .def_prop_ro("pidfd", &ProcessMemory::pidfd, "Readable once the process has ended.");
  nb::class_<SharedMapping>(module, "SharedMapping",
                            "Memory of another process that is a file in memory, mapped here too.")
      .def(nb::new_([](int file, std::uint64_t offset, std::uint64_t length, bool writable) {
             return demand(SharedMapping::make(file, offset, length, writable));
           }),
           nb::arg("file"), nb::arg("offset"), nb::arg("length"), nb::arg("writable"));
  nb::class_<RingFile>(module, "RingFile", "What a program maps its queues from.")
      .def(nb::new_([] { return demand(RingFile::make()); }))
      .def_prop_ro("fd", &RingFile::fd)
      .def_ro_static("DOORBELLS_AT", &kDoorbellsAt,
                     "Where the description that a program gets must begin.");
  nb::class_<MappedRing>(module, "MappedRing", "A queue that a program maps.")
      .def(nb::new_(&make_ring), nb::arg("element_bytes"), nb::arg("elements"),
           nb::arg("file").none() = nb::none(),
           "Both numbers are rounded up to powers of two; one element always stays free. Without a "
           "file it lies in one of its own.")
      .def_prop_ro("fd", &MappedRing::fd)
      .def_prop_ro("offset", &MappedRing::offset, "Where in the file to map it.")
      .def_prop_ro("size", &MappedRing::bytes, "How much to map: whole pages.")
      .def_prop_ro("element_bytes", &MappedRing::element_bytes)
      .def_prop_ro("elements", &MappedRing::elements);
  nb::class_<EventPipe>(module, "EventPipe", "Completion events as records in a pipe.")
      .def(nb::init<int>(), nb::arg("write_fd"))
      .def_prop_ro("error", &EventPipe::error, "An errno; 0 if it can be written to.")
      .def("forget", &EventPipe::forget, nb::arg("user_handle"),
           "Takes back unread events of a queue; how many the program has read.");
  nb::class_<DoorbellWatch>(module, "DoorbellWatch",
                            "Rings the doorbells that programs write to their files.")
      .def(
          "__init__",
          [](DoorbellWatch* self, const Known& known, std::uint64_t most_ns) {
            auto* made = new (self) DoorbellWatch(known.doorbells, most_ns);
            const Status status = made->start();
            if (status.ok()) return;
            made->~DoorbellWatch();
            raise_refusal(status);
          },
          nb::arg("known"), nb::arg("most_ns") = Lookout::kMostNs, nb::keep_alive<1, 2>(),
          "`most_ns`: how long to look out at most before sleeping.")
      .def(
          "add",
          [](DoorbellWatch& self, const std::shared_ptr<RingFile>& file) {
            demand(self.add(file));
          },
          nb::arg("file"), "Programs' descriptions of it must begin at DOORBELLS_AT.")
      .def("remove", &DoorbellWatch::remove, nb::arg("inode"))
      .def("ring_written", &DoorbellWatch::ring_written, nb::arg("inode"),
           nb::call_guard<GilReleased>(),
           "Rings what programs have written to a file so far, before this returns.")
      .def(
          "close", [](DoorbellWatch& self) { self.stop(); }, nb::call_guard<GilReleased>());
}

}  // namespace

void bind_user_abi(nb::module_& module, HcaClass& hca) {
  bind_objects(module);
  hca.def(
         "reg_process_mr",
         [](Hca& self, std::uint32_t pd, const Memory& memory, std::uint64_t address,
            std::uint64_t length, std::uint64_t iova, std::uint32_t access) {
           const RegionRequest request{pd, address, length, iova, access, nullptr, memory};
           return demand(self.call([&](Adapter& adapter) { return adapter.reg_region(request); }));
         },
         nb::arg("pd"), nb::arg("memory"), nb::arg("address"), nb::arg("length"), nb::arg("iova"),
         nb::arg("access"))
      .def(
          "reg_mapped_mr",
          [](Hca& self, std::uint32_t pd, const std::shared_ptr<SharedMapping>& mapping,
             std::uint64_t length, std::uint64_t iova, std::uint32_t access) {
            const RegionRequest request{pd,     mapping->address(), length, iova, access, nullptr,
                                        mapping};
            return demand(self.call([&](Adapter& adapter) { return adapter.reg_region(request); }));
          },
          nb::arg("pd"), nb::arg("mapping"), nb::arg("length"), nb::arg("iova"), nb::arg("access"),
          "`length` is at most what was mapped.")
      .def(
          "map_qp",
          [](Hca& self, std::uint32_t qpn, const Ring& sq, const std::optional<Ring>& rq) {
            demand(self.call(
                [&](Adapter& adapter) { return map_qp(adapter, qpn, sq, rq.value_or(nullptr)); }));
          },
          nb::arg("qpn"), nb::arg("sq"), nb::arg("rq").none(),
          "Feeds a queue pair in RESET from rings from then on.")
      .def(
          "map_srq",
          [](Hca& self, std::uint32_t srq, const Ring& ring) {
            demand(self.call([&](Adapter& adapter) { return map_srq(adapter, srq, ring); }));
          },
          nb::arg("srq"), nb::arg("ring"))
      .def(
          "map_cq",
          [](Hca& self, std::uint32_t cq, const Ring& ring) {
            const auto outlet = std::make_shared<MappedCompletions>(ring);
            demand(self.call([&](Adapter& adapter) { return adapter.lead_cq(cq, outlet); }));
          },
          nb::arg("cq"), nb::arg("ring"),
          "Completions go to the ring; those that wait in another ring go along.")
      .def(
          "ring_doorbell",
          [](Hca& self, std::uint32_t qpn) {
            demand(self.call([&](Adapter& adapter, std::uint64_t now_ns) {
              return adapter.ring_doorbell(qpn, now_ns);
            }));
          },
          nb::arg("qpn"))
      .def(
          "create_pipe_sink",
          [](Hca& self, const std::shared_ptr<EventPipe>& pipe, std::uint64_t user_handle) {
            return self.completion_sinks().add(std::make_shared<PipeSink>(pipe, user_handle));
          },
          nb::arg("pipe"), nb::arg("user_handle"), "The number that attach_cq() takes.");
}

}  // namespace softhca
