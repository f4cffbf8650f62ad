// A queue in memory that a program maps too, in the layout of Linux's rxe (rdma_user_rxe.h,
// rxe_queue_buf): a header of 384 bytes with the two indices, and a power of two of elements.
//
// The program may write anything anywhere at any time. What is read is read once, indices are
// masked, the size is what we remember, and memory that is gone is a false, never a signal.
#pragma once

#include <cstdint>
#include <memory>

#include "uabi/ring_file.hpp"
#include "vocabulary/bytes.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

class MappedRing {
 public:
  // Both numbers are rounded up to powers of two, elements to 64 bytes at least. One element always
  // stays free: a ring for n requests needs n + 1.
  static Result<std::shared_ptr<MappedRing>> make(std::shared_ptr<RingFile> file,
                                                  std::uint32_t element_bytes,
                                                  std::uint32_t elements);
  ~MappedRing();
  MappedRing(const MappedRing&) = delete;
  MappedRing& operator=(const MappedRing&) = delete;

  int fd() const { return file_->fd(); }
  std::uint64_t offset() const { return offset_; }  // In the file.
  std::uint64_t bytes() const { return bytes_; }    // To be mapped: whole pages.
  std::uint32_t element_bytes() const { return 1u << log2_element_; }
  std::uint32_t mask() const { return mask_; }
  std::uint32_t elements() const { return mask_ + 1; }

  bool load_producer(std::uint32_t& index) const { return load(kProducerAt, index); }
  bool load_consumer(std::uint32_t& index) const { return load(kConsumerAt, index); }
  // The index is masked; what was written to elements before can be seen by who sees it.
  bool store_producer(std::uint32_t index) { return store(kProducerAt, index & mask_); }
  bool store_consumer(std::uint32_t index) { return store(kConsumerAt, index & mask_); }

  // The first bytes of an element.
  bool read(std::uint32_t index, ByteSpan to) const;
  bool write(std::uint32_t index, ByteView from);

 private:
  static constexpr std::size_t kMaskAt = 4;
  static constexpr std::size_t kProducerAt = 128;
  static constexpr std::size_t kConsumerAt = 256;
  static constexpr std::size_t kElementsAt = 384;

  MappedRing() = default;
  bool load(std::size_t at, std::uint32_t& index) const;
  bool store(std::size_t at, std::uint32_t value);
  std::uint8_t* element(std::uint32_t index) const {
    return memory_ + kElementsAt + (std::size_t{index & mask_} << log2_element_);
  }

  std::shared_ptr<RingFile> file_;
  std::uint8_t* memory_ = nullptr;
  std::uint64_t offset_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint32_t log2_element_ = 0;
  std::uint32_t mask_ = 0;
};

}  // namespace softhca
