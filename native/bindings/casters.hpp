// How values of ours cross into Python: a GID is sixteen bytes, a view of bytes is `bytes`.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "vocabulary/bytes.hpp"
#include "vocabulary/gid.hpp"

namespace nb = nanobind;

namespace softhca {

inline nb::bytes bytes_of(ByteView view) { return nb::bytes(view.data(), view.size()); }

inline ByteView view_of(const nb::bytes& bytes) {
  return {static_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace softhca

template <>
struct nanobind::detail::type_caster<softhca::Gid> {
  NB_TYPE_CASTER(softhca::Gid, const_name("bytes"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!PyBytes_Check(source.ptr()) || PyBytes_Size(source.ptr()) != 16) return false;
    std::memcpy(value.raw.data(), PyBytes_AsString(source.ptr()), 16);
    return true;
  }

  static handle from_cpp(const softhca::Gid& gid, rv_policy, cleanup_list*) noexcept {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(gid.raw.data()), 16);
  }
};
