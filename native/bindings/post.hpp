// Posting: one work request or a list of them, handed to the adapter in one call.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/casters.hpp"
#include "bindings/completions.hpp"
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

// Notes the callback of a work request that has one, and returns its number; 0 if it has none.
template <class Wr>
std::uint64_t note_cqe(Hca& hca, nb::handle object, const Wr& wr, PostedTo to) {
  if (!wr.has_cqe) return 0;
  bool signaled = true;
  if constexpr (std::is_same_v<Wr, SendWr>) signaled = (wr.send_flags & kSendSignaled) != 0;
  return hca.cqes.add(object.attr("cqe"), object, to, signaled);
}

// `submit(adapter, list, posted, now_ns, cqes)` posts. A refusal is raised with the work request
// that it is about; what came before it stays posted.
template <class Wr, class Submit>
void post(Hca& hca, nb::handle wrs, PostedTo to, Submit&& submit) {
  std::size_t posted = 0;
  auto submit_all = [&](std::span<const Wr* const> list, std::span<const std::uint64_t> cqes) {
    std::uint64_t order = 0;
    const Status status = hca.call([&](Adapter& adapter, std::uint64_t now_ns) {
      order = hca.posted_so_far;
      const Status outcome = submit(adapter, list, posted, now_ns, cqes);
      hca.posted_so_far += posted;
      return outcome;
    });
    // A completion may have come already; what was not posted will never have one. Nor will what
    // another thread has destroyed the queue of, which it leaves to us to tell.
    std::vector<CqeTable::Posted> gone;
    for (std::size_t i = 0; i < cqes.size(); ++i) {
      if (cqes[i] == 0) continue;
      if (i < posted) {
        CqeTable::Posted posted_too_late = hca.cqes.posted(cqes[i], to, order + i);
        if (posted_too_late.cqe.is_valid()) gone.push_back(std::move(posted_too_late));
      } else {
        hca.cqes.remove(cqes[i]);
      }
    }
    for (const CqeTable::Posted& one : gone) tell_forgotten(one.cqe);
    return status;
  };
  if (nb::isinstance<Wr>(wrs)) {
    const std::array<const Wr*, 1> single{work_request<Wr>(wrs)};
    const std::array<std::uint64_t, 1> cqe{note_cqe(hca, wrs, *single[0], to)};
    const Status status = submit_all(single, cqe);
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
  std::vector<std::uint64_t> cqes;
  cqes.reserve(kept.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    cqes.push_back(note_cqe(hca, kept[i], *list[i], to));
  }
  const Status status = submit_all(list, cqes);
  if (!status.ok()) raise_refusal(status, kept[posted]);
}

}  // namespace softhca
