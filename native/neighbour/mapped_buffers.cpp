#include "neighbour/mapped_buffers.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "neighbour/fair_share.hpp"

namespace softhca {

MappedBuffers::~MappedBuffers() {
  while (!mappings_.empty()) unmap(mappings_.begin()->first);
}

void MappedBuffers::map(std::uint64_t number, std::uint64_t bytes, const FileDescriptor& fd) {
  struct stat status;
  // Of files, only those in memory can be asked for their seals. They are mapped as a whole: a part
  // of one with huge pages could not be unmapped again.
  if (bytes == 0 || mappings_.contains(number) || mappings_.size() >= kMost ||
      fcntl(fd.get(), F_GET_SEALS) < 0 || fstat(fd.get(), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != bytes || !take_addresses(bytes)) {
    return;
  }
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address != MAP_FAILED) {
    mappings_[number] = {address, bytes};
  } else {
    give_addresses_back(bytes);
  }
}

void MappedBuffers::unmap(std::uint64_t number) {
  const auto found = mappings_.find(number);
  if (found == mappings_.end()) return;
  munmap(found->second.address, found->second.bytes);
  give_addresses_back(found->second.bytes);
  mappings_.erase(found);
}

const std::uint8_t* MappedBuffers::at(std::uint64_t number, std::uint64_t offset,
                                      std::uint64_t length) const {
  const auto found = mappings_.find(number);
  if (found == mappings_.end()) return nullptr;
  const Mapping& mapping = found->second;
  if (offset > mapping.bytes || length > mapping.bytes - offset) return nullptr;
  return static_cast<const std::uint8_t*>(mapping.address) + offset;
}

}  // namespace softhca
