// The queues of programs, in mapped rings: what an adapter fetches from and completes to.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "queue/completion_outlet.hpp"
#include "queue/work_source.hpp"
#include "uabi/mapped_ring.hpp"

namespace softhca {

// Called with the adapter locked, as all of them. Our own indices are kept here; what the program
// writes to their places in the ring is overwritten, never believed.
class MappedSendQueue final : public SendSource {
 public:
  MappedSendQueue(std::shared_ptr<MappedRing> ring, bool datagram);

  std::uint32_t available() override;
  bool next(SendWr& wr) override;
  void finished() override;
  void reset() override;

 private:
  std::shared_ptr<MappedRing> ring_;
  const bool datagram_;
  std::vector<std::uint8_t> element_;  // The one taken last.
  std::uint32_t fetched_ = 0;          // The next to be taken.
  std::uint32_t consumer_ = 0;         // The oldest that is not done.
};

class MappedReceiveQueue final : public ReceiveSource {
 public:
  explicit MappedReceiveQueue(std::shared_ptr<MappedRing> ring);

  std::uint32_t count() override;
  bool next(RecvWr& wr, std::uint32_t max_sge) override;
  void reset() override;

 private:
  std::shared_ptr<MappedRing> ring_;
  std::vector<std::uint8_t> element_;
  std::uint32_t consumer_ = 0;
};

class MappedCompletions final : public CompletionOutlet {
 public:
  explicit MappedCompletions(std::shared_ptr<MappedRing> ring) : ring_(std::move(ring)) {}

  bool put(const Completion& completion) override;
  std::uint32_t count() const override;
  bool continue_from(const CompletionOutlet& before) override;

 private:
  std::shared_ptr<MappedRing> ring_;
  std::uint32_t producer_ = 0;
};

}  // namespace softhca
