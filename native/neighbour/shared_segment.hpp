// The memory that two adapters of a host share: a ring for each direction.
#pragma once

#include "link/file_descriptor.hpp"
#include "neighbour/shared_ring.hpp"

namespace softhca {

struct SegmentLayout {
  RingShared rings[2];  // From who made the segment, and to it.
};

class SharedSegment {
 public:
  SharedSegment() = default;
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  // Errno; 0 is success.
  int create();
  // Maps what a peer has made. EINVAL: it could change its size under us, and is not taken.
  int adopt(FileDescriptor&& fd);

  int fd() const { return fd_.get(); }
  SegmentLayout& layout() { return *layout_; }
  // Forgets the descriptor, which somebody else has closed.
  void lose() { fd_.release(); }
  // In a child of fork(): only the copy of the descriptor goes.
  void abandon();

 private:
  int map();

  FileDescriptor fd_;
  SegmentLayout* layout_ = nullptr;
};

}  // namespace softhca
