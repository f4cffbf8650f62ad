#include "bindings/post_many.hpp"

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>

#include "bindings/records.hpp"

namespace softhca {
namespace {

// Work requests that are made at once: few enough to stay in the cache.
constexpr std::size_t kChunk = 32;
constexpr char kNativeOrder = std::endian::native == std::endian::little ? '<' : '>';

// A buffer of contiguous bytes, exported for as long as it lives.
class Bytes {
 public:
  Bytes(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nb::python_error();
  }
  ~Bytes() { PyBuffer_Release(&buffer_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  std::size_t size() const { return static_cast<std::size_t>(buffer_.len); }
  const char* data() const { return static_cast<const char*>(buffer_.buf); }
  std::string_view format() const { return buffer_.format == nullptr ? "B" : buffer_.format; }
  template <class T>
  T at(std::size_t index) const {
    T value;
    std::memcpy(&value, data() + index * sizeof(T), sizeof(T));
    return value;
  }

 private:
  Py_buffer buffer_{};
};

// The numbers that come back in completions: those of the work requests, one after the other from a
// first one on, or one for each.
class WrIds {
 public:
  explicit WrIds(nb::handle wr_ids) {
    if (wr_ids.is_none()) return;
    if (PyIndex_Check(wr_ids.ptr()) != 0 && PySequence_Check(wr_ids.ptr()) == 0) {
      first_ = number(wr_ids);
    } else if (has_contiguous_buffer(wr_ids)) {
      take_buffer(wr_ids);
    } else {
      take_sequence(wr_ids);
    }
  }

  // How many work requests there are, if that is said here.
  std::optional<std::size_t> count() const {
    return each_ ? std::optional(each_->size()) : std::nullopt;
  }
  bool are_those_of_wrs() const { return !first_ && !each_; }

  // Refuses if these are not numbers for so many.
  void check(std::size_t count) const {
    if (first_ && count > 0 && *first_ + (count - 1) < *first_) {
      demand(refuse(EINVAL, "wr_ids", *first_, "is too large a first number: wr_ids have 64 bits"));
    }
    if (each_ && each_->size() != count) {
      demand(refuse(EINVAL, "wr_ids", each_->size(), "must be as many as the work requests"));
    }
  }

  std::uint64_t at(std::size_t index, std::uint64_t own) const {
    if (first_) return *first_ + index;
    return each_ ? (*each_)[index] : own;
  }

 private:
  static std::uint64_t number(nb::handle object) {
    if (PyBool_Check(object.ptr())) {
      PyErr_Format(PyExc_TypeError, "wr_ids must be an integer, not %R", object.ptr());
      throw nb::python_error();
    }
    PyObject* const index = PyNumber_Index(object.ptr());
    if (index == nullptr) throw nb::python_error();
    const nb::object integer = nb::steal(index);
    const std::uint64_t value = PyLong_AsUnsignedLongLong(index);
    if (PyErr_Occurred() == nullptr) return value;
    nb::python_error error;
    if (!error.matches(PyExc_OverflowError)) throw error;
    refuse_number(integer);
  }

  [[noreturn]] static void refuse_number(nb::handle value) {
    raise_refusal_of(value, refuse(EINVAL, "wr_ids", 0, "must be 0 to 18446744073709551615"));
  }

  // An array with gaps is a sequence like others.
  static bool has_contiguous_buffer(nb::handle wr_ids) {
    if (PyObject_CheckBuffer(wr_ids.ptr()) == 0) return false;
    Py_buffer buffer;
    if (PyObject_GetBuffer(wr_ids.ptr(), &buffer, PyBUF_CONTIG_RO) == 0) {
      PyBuffer_Release(&buffer);
      return true;
    }
    PyErr_Clear();
    return false;
  }

  [[noreturn]] static void refuse_type() {
    throw nb::type_error("wr_ids must be an integer, a sequence of them, or an array of 64 bits");
  }

  void take_buffer(nb::handle wr_ids) {
    const Bytes bytes(wr_ids, PyBUF_CONTIG_RO | PyBUF_FORMAT);
    std::string_view format = bytes.format();
    // ctypes names the byte order, which is the machine's.
    if (format.starts_with(kNativeOrder)) format.remove_prefix(1);
    const bool is_signed = format == "q" || format == "l";
    if (!is_signed && format != "Q" && format != "L") refuse_type();
    each_.emplace(bytes.size() / sizeof(std::uint64_t));
    std::memcpy(each_->data(), bytes.data(), bytes.size());
    const auto negative = [](std::uint64_t id) { return static_cast<std::int64_t>(id) < 0; };
    const auto found = is_signed ? std::ranges::find_if(*each_, negative) : each_->end();
    if (found != each_->end()) refuse_number(nb::int_(static_cast<std::int64_t>(*found)));
  }

  void take_sequence(nb::handle wr_ids) {
    if (PySequence_Check(wr_ids.ptr()) == 0) refuse_type();
    const nb::tuple kept(nb::borrow(wr_ids));
    each_.emplace();
    each_->reserve(kept.size());
    for (nb::handle id : kept) {
      if (PyIndex_Check(id.ptr()) == 0) refuse_type();
      each_->push_back(number(id));
    }
  }

  std::optional<std::uint64_t> first_;
  std::optional<std::vector<std::uint64_t>> each_;
};

// Work requests that are copies of others with another number. Keeps their storage.
template <class Wr>
struct Copies {
  std::array<Wr, kChunk> wrs;
  std::array<const Wr*, kChunk> pointers;
};

// Posts `count` work requests; `make(index, wr)` makes one, or refuses. Under one lock.
template <class Wr, class Make>
Status post_made(Hca& hca, PostedTo to, std::size_t count, std::size_t& posted, Make&& make) {
  return call_quickly(hca, [&](Adapter& adapter, std::uint64_t now_ns) {
    static thread_local Copies<Wr> copies;
    Status refused;
    do {
      std::size_t made = 0;
      for (; made < kChunk && posted + made < count; ++made) {
        refused = make(posted + made, copies.wrs[made]);
        if (!refused.ok()) break;
        copies.pointers[made] = &copies.wrs[made];
      }
      std::size_t taken = 0;
      const Status status =
          submit(hca, adapter, to, std::span(copies.pointers).first(made), taken, now_ns);
      posted += taken;
      if (!status.ok()) return status;
    } while (refused.ok() && posted < count);
    return refused;
  });
}

template <class Wr>
Status copy_of(const Wr& wr, std::uint64_t wr_id, Wr& copy) {
  if (wr.has_cqe) {
    return refuse(EINVAL, "wr_ids", wr_id, "are not for work requests with a callback (cqe)");
  }
  copy = wr;
  copy.wr_id = wr_id;
  return Status::success();
}

// What a record says, in a work request that may have held something else before.
Status made_of(const SendRecord& record, SendWr& wr) {
  if (!is_for_records(record.opcode)) {
    return refuse(EINVAL, "opcode", record.opcode,
                  "is not for records: post a work request of its own");
  }
  wr.memory = {};
  wr.flush = {};
  wr.compare_mask = wr.swap_mask = 0;
  from_record(record, wr);
  return Status::success();
}
Status made_of(const RecvRecord& record, RecvWr& wr) {
  from_record(record, wr);
  return Status::success();
}

template <class Wr, class Record>
Status post_records(Hca& hca, PostedTo to, nb::handle wrs, const WrIds& ids, std::size_t& posted) {
  const Bytes bytes(wrs, PyBUF_SIMPLE);
  if (bytes.size() % sizeof(Record) != 0) {
    demand(refuse(EINVAL, "wrs", bytes.size(),
                  sizeof(Record) == sizeof(SendRecord) ? "must be bytes of records of 80"
                                                       : "must be bytes of records of 24"));
  }
  const std::size_t count = bytes.size() / sizeof(Record);
  ids.check(count);
  return post_made<Wr>(hca, to, count, posted, [&](std::size_t index, Wr& wr) {
    wr.has_cqe = false;
    const Status status = made_of(bytes.at<Record>(index), wr);
    wr.wr_id = ids.at(index, wr.wr_id);
    return status;
  });
}

template <class Wr>
Status post_repeated(Hca& hca, PostedTo to, const Wr& wr, const WrIds& ids, std::size_t& posted) {
  if (!ids.count()) {
    throw nb::type_error("wr_ids must be numbers, one each, for a single work request");
  }
  return post_made<Wr>(hca, to, *ids.count(), posted, [&](std::size_t index, Wr& copy) {
    return copy_of(wr, ids.at(index, 0), copy);
  });
}

template <class Wr>
Status post_objects(Hca& hca, PostedTo to, nb::handle wrs, const WrIds& ids, std::size_t& posted) {
  const WorkRequests<Wr> many(wrs);
  ids.check(many.list().size());
  if (ids.are_those_of_wrs()) return many.post(hca, to, posted);
  return post_made<Wr>(hca, to, many.list().size(), posted, [&](std::size_t index, Wr& copy) {
    return copy_of(*many.list()[index], ids.at(index, 0), copy);
  });
}

template <class Wr, class Record>
void post_many(Hca& hca, PostedTo to, nb::handle wrs, nb::handle wr_ids) {
  const WrIds ids(wr_ids);
  std::size_t posted = 0;
  Status status;
  if (const Wr* wr = find_work_request<Wr>(wrs); wr != nullptr) {
    status = post_repeated(hca, to, *wr, ids, posted);
  } else if (PyObject_CheckBuffer(wrs.ptr()) != 0) {
    status = post_records<Wr, Record>(hca, to, wrs, ids, posted);
  } else {
    status = post_objects<Wr>(hca, to, wrs, ids, posted);
  }
  if (!status.ok()) raise_refusal(status, nb::int_(posted));
}

}  // namespace

void post_send_many(Hca& hca, PostedTo to, nb::handle wrs, nb::handle wr_ids) {
  post_many<SendWr, SendRecord>(hca, to, wrs, wr_ids);
}

void post_recv_many(Hca& hca, PostedTo to, nb::handle wrs, nb::handle wr_ids) {
  post_many<RecvWr, RecvRecord>(hca, to, wrs, wr_ids);
}

}  // namespace softhca
