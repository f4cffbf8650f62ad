// Posting: one work request or a list of them, handed to the adapter in one call.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "bindings/casters.hpp"
#include "bindings/hca.hpp"
#include "bindings/refusal.hpp"
#include "queue/work_request.hpp"

namespace softhca {

[[noreturn]] inline void refuse_no_work_requests() {
  throw nb::type_error("wrs must be a work request of this queue, or a list of them");
}

// The work request in a Python object; not one whose constructor was never called.
template <class Wr>
const Wr* work_request(nb::handle object) {
  const Wr* wr = nullptr;
  if (!nb::try_cast(object, wr) || wr == nullptr) {
    refuse_no_work_requests();
  }
  return wr;
}

// `submit(adapter, list, posted, now_ns)` posts. A refusal is raised with the work request that it
// is about; what came before it stays posted.
template <class Wr, class Submit>
void post(Hca& hca, nb::handle wrs, Submit&& submit) {
  std::size_t posted = 0;
  auto submit_all = [&](std::span<const Wr* const> list) {
    return hca.call([&](Adapter& adapter, std::uint64_t now_ns) {
      return submit(adapter, list, posted, now_ns);
    });
  };
  if (nb::isinstance<Wr>(wrs)) {
    const std::array<const Wr*, 1> single{work_request<Wr>(wrs)};
    const Status status = submit_all(single);
    if (!status.ok()) raise_refusal(status, wrs);
    return;
  }
  if (!nb::hasattr(wrs, "__iter__")) refuse_no_work_requests();
  // A tuple of our own, so that nobody takes a work request away while the GIL is released.
  const nb::tuple kept(nb::borrow(wrs));
  std::vector<const Wr*> list;
  list.reserve(kept.size());
  for (nb::handle wr : kept) {
    list.push_back(work_request<Wr>(wr));
  }
  const Status status = submit_all(list);
  if (!status.ok()) raise_refusal(status, kept[posted]);
}

}  // namespace softhca
