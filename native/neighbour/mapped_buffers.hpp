// Buffers of a neighbour that are mapped here.
#pragma once

#include <cstdint>
#include <map>

#include "link/file_descriptor.hpp"

namespace softhca {

class MappedBuffers {
 public:
  MappedBuffers() = default;
  MappedBuffers(const MappedBuffers&) = delete;
  MappedBuffers& operator=(const MappedBuffers&) = delete;
  ~MappedBuffers();

  // A neighbour with more gets what lies there across as it does other memory.
  static constexpr std::size_t kMost = 256;

  // Nothing, if it is not memory, for a fault there could wait for somebody; not all of the file;
  // or more than neighbours may take of the addresses.
  void map(std::uint64_t number, std::uint64_t bytes, const FileDescriptor& fd);
  void unmap(std::uint64_t number);
  // Where these bytes of the buffer are here; null if they are not.
  const std::uint8_t* at(std::uint64_t number, std::uint64_t offset, std::uint64_t length) const;

 private:
  struct Mapping {
    void* address = nullptr;
    std::uint64_t bytes = 0;
  };
  std::map<std::uint64_t, Mapping> mappings_;
};

}  // namespace softhca
