// The memory that the neighbours of this process share, for tests that do to it what no peer
// should.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "link/file_descriptor.hpp"
#include "neighbour/shared_segment.hpp"

namespace softhca::testing {

// Mappings of our own of what the devices share; theirs go when they find it broken.
struct Segments {
  Segments() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry.path(), error);
      if (target.find("softhca-neighbour") == std::string::npos) continue;
      const FileDescriptor own(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
      void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, own.get(), 0);
      if (at != MAP_FAILED) mapped.push_back({static_cast<std::uint8_t*>(at), kBytes});
    }
  }
  ~Segments() {
    for (const auto& one : mapped) munmap(one.data(), one.size());
  }
  static constexpr std::size_t kBytes = sizeof(SegmentLayout);
  std::vector<std::span<std::uint8_t>> mapped;
};

}  // namespace softhca::testing
