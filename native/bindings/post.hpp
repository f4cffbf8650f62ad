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
#include "bindings/request_types.hpp"

namespace softhca {

[[noreturn]] inline void refuse_no_work_requests() {
  throw nb::type_error("wrs must be a work request of this queue, or a list of them");
}

template <class Wr>
const Wr* work_request(nb::handle object) {
  const Wr* wr = find_work_request<Wr>(object);
  if (wr == nullptr) refuse_no_work_requests();
  return wr;
}

// Notes the callback of a work request that has one, and returns its number; 0 if it has none.
template <class Wr>
std::uint64_t note_cqe(Hca& hca, nb::handle object, const Wr& wr, PostedTo to) {
  if (!wr.has_cqe) return 0;
  bool signaled = true;
  if constexpr (std::is_same_v<Wr, SendWr>) signaled = (wr.send_flags & kSendSignaled) != 0;
  return hca.cqes.add(RequestObject<Wr>::of(object.ptr()).cqe, object, to, signaled);
}

// A window or region is a number of its device, and would name another one here.
inline Status refuse_foreign(const Hca& hca, const SendWr& wr) {
  if (wr.memory.owner == 0 || wr.memory.owner == hca.identity()) return Status::success();
  return refuse(EINVAL, wr.opcode == WrOpcode::BIND_MW ? "mw" : "mr", wr.memory.object,
                "belongs to another device");
}
inline Status refuse_foreign(const Hca&, const RecvWr&) { return Status::success(); }

// Posts to the queue of `to`. `posted` says how many were taken before a refusal.
inline Status submit(Hca& hca, Adapter& adapter, PostedTo to, std::span<const SendWr* const> wrs,
                     std::size_t& posted, std::uint64_t now_ns,
                     std::span<const std::uint64_t> cqes = {}) {
  const auto foreign =
      std::ranges::find_if(wrs, [&](const SendWr* wr) { return !refuse_foreign(hca, *wr).ok(); });
  const auto own = wrs.first(static_cast<std::size_t>(foreign - wrs.begin()));
  const Status status = adapter.post_send(to.number, own, posted, now_ns, cqes);
  hca.posted_so_far += posted;
  if (!status.ok() || foreign == wrs.end()) return status;
  return refuse_foreign(hca, **foreign);
}
inline Status submit(Hca& hca, Adapter& adapter, PostedTo to, std::span<const RecvWr* const> wrs,
                     std::size_t& posted, std::uint64_t now_ns,
                     std::span<const std::uint64_t> cqes = {}) {
  const Status status = to.kind == PostedTo::Kind::SHARED
                            ? adapter.post_srq_recv(to.number, wrs, posted, now_ns, cqes)
                            : adapter.post_recv(to.number, wrs, posted, now_ns, cqes);
  hca.posted_so_far += posted;
  return status;
}

// Calls `verb(adapter, now_ns)`, without letting the GIL go if nobody else is at the adapter.
template <class Verb>
Status call_quickly(Hca& hca, Verb&& verb) {
  Status status;
  if (!hca.call_at_once(verb, status)) return hca.call(verb);
  // Who posts to a full queue until there is room waits for another thread, which has its turn
  // here.
  if (!status.ok()) const GilReleased turn_of_others;
  return status;
}

// Posts work requests without callbacks.
template <class Wr>
Status post_plain(Hca& hca, PostedTo to, std::span<const Wr* const> list, std::size_t& posted) {
  return call_quickly(hca, [&](Adapter& adapter, std::uint64_t now_ns) {
    return submit(hca, adapter, to, list, posted, now_ns);
  });
}

// The same with their callbacks.
template <class Wr>
Status post_noted(Hca& hca, PostedTo to, std::span<const Wr* const> list,
                  std::span<const nb::handle> objects, std::size_t& posted) {
  std::vector<std::uint64_t> cqes;
  cqes.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    cqes.push_back(note_cqe(hca, objects[i], *list[i], to));
  }
  std::uint64_t order = 0;
  const Status status = call_quickly(hca, [&](Adapter& adapter, std::uint64_t now_ns) {
    order = hca.posted_so_far;
    return submit(hca, adapter, to, list, posted, now_ns, cqes);
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
}

// Work requests of a Python sequence, which it keeps.
template <class Wr>
class WorkRequests {
 public:
  explicit WorkRequests(nb::handle wrs) {
    if (!nb::hasattr(wrs, "__iter__")) refuse_no_work_requests();
    // A tuple of our own, so that nobody takes a work request away while the GIL is released.
    kept_ = nb::tuple(nb::borrow(wrs));
    list_.reserve(kept_.size());
    for (nb::handle wr : kept_) {
      list_.push_back(work_request<Wr>(wr));
      has_cqe_ |= list_.back()->has_cqe;
    }
  }

  std::span<const Wr* const> list() const { return list_; }
  nb::handle object(std::size_t index) const { return kept_[index]; }
  bool has_cqe() const { return has_cqe_; }

  Status post(Hca& hca, PostedTo to, std::size_t& posted) const {
    if (!has_cqe()) return post_plain<Wr>(hca, to, list_, posted);
    const std::vector<nb::handle> objects(kept_.begin(), kept_.end());
    return post_noted<Wr>(hca, to, list_, objects, posted);
  }

 private:
  nb::tuple kept_;
  std::vector<const Wr*> list_;
  bool has_cqe_ = false;
};

// A single work request.
template <class Wr>
Status post_one(Hca& hca, nb::handle object, const Wr* wr, PostedTo to) {
  std::size_t posted = 0;
  const std::array<const Wr*, 1> list{wr};
  if (!wr->has_cqe) return post_plain<Wr>(hca, to, list, posted);
  const std::array<nb::handle, 1> objects{object};
  return post_noted<Wr>(hca, to, list, objects, posted);
}

// A refusal is raised with the work request that it is about; what came before it stays posted.
template <class Wr>
void post(Hca& hca, nb::handle wrs, PostedTo to) {
  if (const Wr* wr = find_work_request<Wr>(wrs); wr != nullptr) {
    if (const Status status = post_one(hca, wrs, wr, to); !status.ok()) raise_refusal(status, wrs);
    return;
  }
  const WorkRequests<Wr> many(wrs);
  std::size_t posted = 0;
  const Status status = many.post(hca, to, posted);
  if (!status.ok()) raise_refusal(status, many.object(posted));
}

}  // namespace softhca
