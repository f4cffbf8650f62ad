// Work requests that are made without Python code on the way.
//
// quicken_request(Write, WrOpcode.RDMA_WRITE, ...) gives a Python class a vectorcall: what runs
// when the class is called. It knows the ordinary arguments: parts of regions, a RemoteMemory,
// integers in range, True and False. It makes what the class's constructor would make. Whatever
// else it meets, it leaves to the constructor, which remains the definition of the class, and which
// subclasses run.

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "bindings/exact_integers.hpp"
#include "bindings/module.hpp"
#include "bindings/plain_type.hpp"
#include "bindings/request_types.hpp"
#include "bindings/slots.hpp"

namespace softhca {
namespace {

// Names of keywords, which the compiler of Python interns like these. Null until they are bound.
struct Names {
  PyObject* wr_id = nullptr;
  PyObject* signaled = nullptr;
  PyObject* fence = nullptr;
  PyObject* solicited = nullptr;
  PyObject* cqe = nullptr;
  PyObject* remote = nullptr;
  PyObject* imm = nullptr;
  PyObject* rkey = nullptr;
};
Names names;

void intern_names() {
  const auto intern = [](const char* name) { return PyUnicode_InternFromString(name); };
  names = {.wr_id = intern("wr_id"),
           .signaled = intern("signaled"),
           .fence = intern("fence"),
           .solicited = intern("solicited"),
           .cqe = intern("cqe"),
           .remote = intern("remote"),
           .imm = intern("imm"),
           .rkey = intern("rkey")};
}

// The classes that arguments are of, and where their instances keep what they are.
struct ArgumentTypes {
  PyTypeObject* sge = nullptr;
  PyTypeObject* remote = nullptr;
  PyTypeObject* cqe = nullptr;
  Slot sge_addr, sge_length, sge_lkey, sge_mr;
  Slot remote_addr, remote_rkey, remote_length;
};

ArgumentTypes types;

// The ordinary arguments of one call, as far as they were understood.
struct Parsed {
  PyObject* cqe = Py_None;
  std::uint64_t wr_id = 0;
  std::uint32_t flags = 0;
  std::optional<std::uint64_t> imm;
  std::optional<std::uint64_t> rkey;
  PyObject* remote = nullptr;
  bool says_signaled = false;  // Or that it shall not be.
  bool is_for_sends = false;   // There was a keyword that receives do not take.
};

bool add_flag(PyObject* value, std::uint32_t flag, std::uint32_t& flags) {
  if (value == Py_True) flags |= flag;
  return value == Py_True || value == Py_False;
}

bool take_32_bits(PyObject* value, std::optional<std::uint64_t>& into) {
  std::uint64_t number = 0;
  if (!exact_unsigned(value, number) || number > 0xffffffff) return false;
  into = number;
  return true;
}

bool take_cqe(PyObject* value, PyObject*& into) {
  into = value;
  return value == Py_None || PyType_IsSubtype(Py_TYPE(value), types.cqe) != 0;
}

bool take_keyword(PyObject* name, PyObject* value, Parsed& parsed) {
  const Names& known = names;
  if (name == known.wr_id) return exact_unsigned(value, parsed.wr_id);
  if (name == known.cqe) return take_cqe(value, parsed.cqe);
  parsed.is_for_sends = true;
  if (name == known.signaled) {
    parsed.says_signaled = true;
    return add_flag(value, kSendSignaled, parsed.flags);
  }
  if (name == known.remote) return (parsed.remote = value, Py_TYPE(value) == types.remote);
  if (name == known.fence) return add_flag(value, kSendFence, parsed.flags);
  if (name == known.solicited) return add_flag(value, kSendSolicited, parsed.flags);
  if (name == known.imm) return take_32_bits(value, parsed.imm);
  return name == known.rkey && take_32_bits(value, parsed.rkey);
}

// A part of a region, which is right by construction; false for any other.
bool take_sge(PyObject* object, Sge& sge) {
  const ArgumentTypes& known = types;
  if (Py_TYPE(object) != known.sge) return false;
  PyObject* const mr = known.sge_mr.of(object);
  std::uint64_t length = 0;
  std::uint64_t lkey = 0;
  if (mr == nullptr || mr == Py_None || !exact_unsigned(known.sge_addr.of(object), sge.address) ||
      !exact_unsigned(known.sge_length.of(object), length) ||
      !exact_unsigned(known.sge_lkey.of(object), lkey) || (length | lkey) > 0xffffffff) {
    return false;
  }
  sge.length = static_cast<std::uint32_t>(length);
  sge.lkey = static_cast<std::uint32_t>(lkey);
  return true;
}

// Work requests with more parts are made by the constructor.
constexpr std::size_t kMostSges = 4;

struct Call {
  std::array<Sge, kMostSges> sges;
  std::uint64_t byte_count = 0;
  Parsed parsed;
};

bool parse(PyObject* const* arguments, std::size_t count, PyObject* keywords, Call& call) {
  if (count > kMostSges) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!take_sge(arguments[i], call.sges[i])) return false;
    call.byte_count += call.sges[i].length;
  }
  const auto named = keywords == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(keywords));
  for (std::size_t i = 0; i < named; ++i) {
    PyObject* const name = PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i));
    if (!take_keyword(name, arguments[count + i], call.parsed)) return false;
  }
  return true;
}

// What keeps the buffers valid: the parts of regions themselves. Null for none, or with a Python
// error.
PyObject* kept_of(PyObject* const* arguments, std::size_t count) {
  if (count <= 1) return count == 0 ? nullptr : Py_NewRef(arguments[0]);
  PyObject* const kept = PyTuple_New(static_cast<Py_ssize_t>(count));
  for (std::size_t i = 0; kept != nullptr && i < count; ++i) {
    PyTuple_SET_ITEM(kept, static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
  }
  return kept;
}

// A new instance with what all work requests have; null with a Python error. `set(wr)` sets what
// else its family has, always the same fields: there may be a work request of before in them.
template <class Wr, class Set>
PyObject* make(PyObject* cls, const Call& call, PyObject* const* arguments, std::size_t count,
               Set&& set) {
  nb::object made = nb::steal(allocate_request<Wr>(reinterpret_cast<PyTypeObject*>(cls)));
  if (!made.is_valid()) return nullptr;
  auto& request = RequestObject<Wr>::of(made.ptr());
  request.kept = kept_of(arguments, count);
  if (count > 1 && request.kept == nullptr) return nullptr;
  request.wr.wr_id = call.parsed.wr_id;
  request.wr.has_cqe = call.parsed.cqe != Py_None;
  if (request.wr.has_cqe) request.cqe = Py_NewRef(call.parsed.cqe);
  request.wr.sges.resize(count);
  for (std::size_t i = 0; i < count; ++i) request.wr.sges[i] = call.sges[i];
  set(request.wr);
  request.making = Making::QUICK;
  PyObject_GC_Track(made.ptr());
  return made.release().ptr();
}

// Who gives a callback wants it called.
std::uint32_t send_flags_of(const Parsed& parsed) {
  const bool is_told = parsed.cqe != Py_None && !parsed.says_signaled;
  return parsed.flags | (is_told ? static_cast<std::uint32_t>(kSendSignaled) : 0);
}

// What a class takes besides buffers and options.
struct Needs {
  bool remote = false;
  bool imm = false;
  bool rkey = false;
};

constexpr Needs needs_of(WrOpcode opcode) {
  return {.remote = opcode == WrOpcode::RDMA_WRITE || opcode == WrOpcode::RDMA_WRITE_WITH_IMM ||
                    opcode == WrOpcode::RDMA_READ,
          .imm = opcode == WrOpcode::SEND_WITH_IMM || opcode == WrOpcode::RDMA_WRITE_WITH_IMM,
          .rkey = opcode == WrOpcode::SEND_WITH_INV};
}

// Where a request goes in the peer's memory.
struct Far {
  std::uint64_t address = 0;
  std::uint64_t rkey = 0;
};

// False if the arguments are not what the class takes.
bool resolve_remote(const Call& call, Needs needs, Far& far) {
  const Parsed& parsed = call.parsed;
  if ((parsed.remote != nullptr) != needs.remote || parsed.imm.has_value() != needs.imm ||
      parsed.rkey.has_value() != needs.rkey) {
    return false;
  }
  if (!needs.remote) return true;
  const ArgumentTypes& known = types;
  std::uint64_t length = 0;
  return exact_unsigned(known.remote_addr.of(parsed.remote), far.address) &&
         exact_unsigned(known.remote_rkey.of(parsed.remote), far.rkey) && far.rkey <= 0xffffffff &&
         exact_unsigned(known.remote_length.of(parsed.remote), length) && call.byte_count <= length;
}

// Calls the constructor, as a class without a vectorcall does.
PyObject* construct(PyObject* cls, PyObject* const* arguments, std::size_t count,
                    PyObject* keywords) {
  const nb::object positional = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  if (!positional.is_valid()) return nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(positional.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
  }
  nb::object named;
  if (keywords != nullptr) {
    named = nb::steal(PyDict_New());
    for (Py_ssize_t i = 0; named.is_valid() && i < PyTuple_GET_SIZE(keywords); ++i) {
      PyObject* const value = arguments[count + static_cast<std::size_t>(i)];
      if (PyDict_SetItem(named.ptr(), PyTuple_GET_ITEM(keywords, i), value) != 0) return nullptr;
    }
    if (!named.is_valid()) return nullptr;
  }
  return or_rest([&] { return Py_TYPE(cls)->tp_call(cls, positional.ptr(), named.ptr()); });
}

// Python goes on from here with its own errors only.
template <class Make>
PyObject* guarded(Make&& make) {
  try {
    return or_rest(make);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  }
  return nullptr;
}

template <WrOpcode opcode>
PyObject* make_send(PyObject* cls, PyObject* const* arguments, std::size_t flagged_count,
                    PyObject* keywords) {
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged_count));
  Call call;
  Far far;
  if (!parse(arguments, count, keywords, call) || !resolve_remote(call, needs_of(opcode), far)) {
    return construct(cls, arguments, count, keywords);
  }
  return guarded([&] {
    return make<SendWr>(cls, call, arguments, count, [&](SendWr& wr) {
      wr.opcode = opcode;
      wr.send_flags = send_flags_of(call.parsed);
      wr.immediate = static_cast<std::uint32_t>(call.parsed.imm.value_or(0));
      wr.invalidate_rkey = static_cast<std::uint32_t>(call.parsed.rkey.value_or(0));
      wr.remote_address = far.address;
      wr.rkey = static_cast<std::uint32_t>(far.rkey);
    });
  });
}

PyObject* make_receive(PyObject* cls, PyObject* const* arguments, std::size_t flagged_count,
                       PyObject* keywords) {
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged_count));
  Call call;
  if (!parse(arguments, count, keywords, call) || call.parsed.is_for_sends) {
    return construct(cls, arguments, count, keywords);
  }
  return guarded([&] { return make<RecvWr>(cls, call, arguments, count, [](RecvWr&) {}); });
}

vectorcallfunc maker_of(const std::string& name) {
  if (name == "Send") return make_send<WrOpcode::SEND>;
  if (name == "SendImm") return make_send<WrOpcode::SEND_WITH_IMM>;
  if (name == "SendInv") return make_send<WrOpcode::SEND_WITH_INV>;
  if (name == "Write") return make_send<WrOpcode::RDMA_WRITE>;
  if (name == "WriteImm") return make_send<WrOpcode::RDMA_WRITE_WITH_IMM>;
  if (name == "Read") return make_send<WrOpcode::RDMA_READ>;
  if (name == "Recv") return make_receive;
  throw nb::type_error("the class has no quick constructor");
}

template <class Wr>
void quicken_request(nb::handle cls, vectorcallfunc maker) {
  auto* const type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  if (PyType_IsSubtype(type, request_type<Wr>) == 0 || !adds_nothing(type, request_type<Wr>)) {
    throw nb::type_error("the class is not of work requests, or adds fields to them");
  }
  type->tp_dealloc = deallocate_request<Wr>;
  type->tp_vectorcall = maker;
}

void name_types(nb::handle sge, nb::handle remote, nb::handle cqe) {
  ArgumentTypes& known = types;
  const auto keep = [](nb::handle cls) {  // For the life of the process.
    return reinterpret_cast<PyTypeObject*>(nb::borrow(cls).release().ptr());
  };
  known.sge_addr.find(sge, "addr");
  known.sge_length.find(sge, "length");
  known.sge_lkey.find(sge, "lkey");
  known.sge_mr.find(sge, "mr");
  known.remote_addr.find(remote, "addr");
  known.remote_rkey.find(remote, "rkey");
  known.remote_length.find(remote, "length");
  known.sge = keep(sge);
  known.remote = keep(remote);
  known.cqe = keep(cqe);
}

}  // namespace

void bind_quick_requests(nb::module_& module) {
  intern_names();
  module.def(
      "quicken_requests",
      [](nb::type_object sge, nb::type_object remote, nb::type_object cqe, nb::args classes) {
        name_types(sge, remote, cqe);
        for (nb::handle cls : classes) {
          const vectorcallfunc maker = maker_of(nb::cast<std::string>(cls.attr("__name__")));
          if (maker == &make_receive) {
            quicken_request<RecvWr>(cls, maker);
          } else {
            quicken_request<SendWr>(cls, maker);
          }
        }
      },
      nb::arg("sge"), nb::arg("remote"), nb::arg("cqe"), nb::arg("classes"),
      nb::sig("def quicken_requests(sge: type, remote: type, cqe: type, *classes: type) -> None"),
      "Gives work requests their quick constructors; names the classes of their arguments.");
}

}  // namespace softhca
