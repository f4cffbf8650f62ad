// Asynchronous events that nobody has taken yet.
//
// Nothing is forgotten, and the list stays bounded: of the same event of the same object it holds
// one, the latest, and what happened to an object goes with it.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>

#include "adapter/adapter.hpp"

namespace softhca {

class EventList {
 public:
  bool empty() const { return events_.empty(); }

  void push(EventType type, std::uint32_t object) {
    const auto [known, added] = places_.try_emplace(key_of(type, object));
    if (!added) events_.erase(known->second);
    known->second = events_.insert(events_.end(), AsyncEvent{type, object});
  }

  // Takes the oldest; false if there is none.
  bool pop(AsyncEvent& event) {
    if (events_.empty()) return false;
    event = events_.front();
    places_.erase(key_of(event.type, event.object));
    events_.pop_front();
    return true;
  }

  // Call when the object ends.
  void forget_qp(std::uint32_t qpn) {
    for (const EventType type :
         {EventType::QP_FATAL, EventType::QP_REQ_ERR, EventType::QP_ACCESS_ERR, EventType::COMM_EST,
          EventType::SQ_DRAINED, EventType::PATH_MIG, EventType::PATH_MIG_ERR,
          EventType::QP_LAST_WQE_REACHED}) {
      forget(type, qpn);
    }
  }
  void forget_cq(std::uint32_t cq) { forget(EventType::CQ_ERR, cq); }
  void forget_srq(std::uint32_t srq) {
    forget(EventType::SRQ_ERR, srq);
    forget(EventType::SRQ_LIMIT_REACHED, srq);
  }

 private:
  static std::uint64_t key_of(EventType type, std::uint32_t object) {
    return static_cast<std::uint64_t>(type) << 32 | object;
  }
  void forget(EventType type, std::uint32_t object) {
    const auto known = places_.find(key_of(type, object));
    if (known == places_.end()) return;
    events_.erase(known->second);
    places_.erase(known);
  }

  std::list<AsyncEvent> events_;
  // Only looked up, never walked: its order decides nothing.
  std::unordered_map<std::uint64_t, std::list<AsyncEvent>::iterator> places_;
};

}  // namespace softhca
