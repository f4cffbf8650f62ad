#include "uabi/mapped_ring.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "memory/guarded_access.hpp"

namespace softhca {
namespace {

constexpr std::uint32_t kMinElementBytes = 64;
constexpr std::uint32_t kMaxElementBytes = 1u << 16;
constexpr std::uint32_t kMaxElements = 1u << 22;

}  // namespace

Result<std::shared_ptr<MappedRing>> MappedRing::make(std::shared_ptr<RingFile> file,
                                                     std::uint32_t element_bytes,
                                                     std::uint32_t elements) {
  if (element_bytes == 0 || element_bytes > kMaxElementBytes) {
    return refuse(EINVAL, "element_bytes", element_bytes, "must be 1 to 65536");
  }
  if (elements < 2 || elements > kMaxElements) {
    return refuse(EINVAL, "elements", elements, "must be 2 to 4194304");
  }
  install_fault_guard();
  std::shared_ptr<MappedRing> ring(new MappedRing);
  const std::uint32_t rounded = std::bit_ceil(std::max(element_bytes, kMinElementBytes));
  ring->log2_element_ = static_cast<std::uint32_t>(std::countr_zero(rounded));
  ring->mask_ = std::bit_ceil(elements) - 1;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t bytes =
      kElementsAt + (std::uint64_t{ring->elements()} << ring->log2_element_);
  const std::uint64_t mapped = (bytes + page - 1) / page * page;
  const Result<std::uint64_t> offset = file->allocate(mapped);
  if (!offset.ok()) {
    return offset.status;
  }
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(),
                      static_cast<off_t>(offset.value));
  if (memory == MAP_FAILED) {
    return refuse(errno, "elements", elements, "cannot be mapped");
  }
  ring->file_ = std::move(file);
  ring->memory_ = static_cast<std::uint8_t*>(memory);
  ring->offset_ = offset.value;
  ring->bytes_ = mapped;
  if (!ring->store(0, ring->log2_element_) || !ring->store(kMaskAt, ring->mask_)) {
    return refuse(ENOMEM, "elements", elements, "have no memory");
  }
  return ring;
}

MappedRing::~MappedRing() {
  if (memory_ == nullptr) {
    return;
  }
  munmap(memory_, bytes_);
  file_->free(offset_, bytes_);
}

bool MappedRing::load(std::size_t at, std::uint32_t& index) const {
  if (!guarded_load(reinterpret_cast<const std::uint32_t*>(memory_ + at), &index)) {
    return false;
  }
  index &= mask_;
  return true;
}

bool MappedRing::store(std::size_t at, std::uint32_t value) {
  return guarded_store(reinterpret_cast<std::uint32_t*>(memory_ + at), value);
}

bool MappedRing::read(std::uint32_t index, ByteSpan to) const {
  return guarded_copy(to.data(), element(index),
                      std::min<std::size_t>(to.size(), element_bytes())) == 0;
}

bool MappedRing::write(std::uint32_t index, ByteView from) {
  return guarded_copy(element(index), from.data(),
                      std::min<std::size_t>(from.size(), element_bytes())) == 0;
}

}  // namespace softhca
