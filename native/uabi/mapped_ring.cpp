#include "uabi/mapped_ring.hpp"

#include <fcntl.h>
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

int own_file(std::uint64_t bytes) {
  FileDescriptor file(memfd_create("uverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed, so that a program cannot take pages away from under us.
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return -1;
  }
  return fcntl(file.get(), F_DUPFD_CLOEXEC, 0);
}

}  // namespace

Result<MappedRing::Size> MappedRing::size_for(std::uint32_t element_bytes, std::uint32_t elements) {
  if (element_bytes == 0 || element_bytes > kMaxElementBytes) {
    return refuse(EINVAL, "element_bytes", element_bytes, "must be 1 to 65536");
  }
  if (elements < 2 || elements > kMaxElements) {
    return refuse(EINVAL, "elements", elements, "must be 2 to 4194304");
  }
  Size size{std::bit_ceil(std::max(element_bytes, kMinElementBytes)), std::bit_ceil(elements), 0};
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t bytes = kElementsAt + std::uint64_t{size.element_bytes} * size.elements;
  size.bytes = (bytes + page - 1) / page * page;
  return size;
}

Result<std::shared_ptr<MappedRing>> MappedRing::make(int fd, std::uint64_t offset,
                                                     std::uint32_t element_bytes,
                                                     std::uint32_t elements) {
  const Result<Size> size = size_for(element_bytes, elements);
  if (!size.ok()) {
    return size.status;
  }
  install_fault_guard();
  std::shared_ptr<MappedRing> ring(new MappedRing);
  const std::uint64_t bytes = size.value.bytes;
  ring->file_.reset(fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : own_file(bytes));
  void* memory = ring->file_.is_open() ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                              ring->fd(), static_cast<off_t>(offset))
                                       : MAP_FAILED;
  if (memory == MAP_FAILED) {
    return refuse(errno, "fd", static_cast<std::uint64_t>(fd), "cannot be mapped");
  }
  ring->memory_ = static_cast<std::uint8_t*>(memory);
  ring->offset_ = offset;
  ring->bytes_ = bytes;
  ring->log2_element_ = static_cast<std::uint32_t>(std::countr_zero(size.value.element_bytes));
  ring->mask_ = size.value.elements - 1;
  if (!ring->store(0, ring->log2_element_) || !ring->store(kMaskAt, ring->mask_) ||
      !ring->store_producer(0) || !ring->store_consumer(0)) {
    return refuse(ENOMEM, "elements", elements, "have no memory behind them");
  }
  return ring;
}

MappedRing::~MappedRing() {
  if (memory_ != nullptr) {
    munmap(memory_, bytes_);
  }
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
