#include "memory/write_behind.hpp"

#include <span>

namespace softhca {

bool WriteBehind::copy_out(AddressSpace& to, std::uint64_t address, ByteView from,
                           MessagePart& part) {
  const bool continues =
      count_ > 0 && count_ < pieces_.size() && to_ == &to && part_ == &part && end_ == address;
  if (!continues) {
    flush();
    to_ = &to;
    part_ = &part;
    begin_ = end_ = address;
  }
  pieces_[count_++] = from;
  end_ += from.size();
  if (!may_wait || !part.goes_on) {
    write();
  }
  return !part.lost;
}

void WriteBehind::write() {
  if (!to_->copy_out_all(begin_, std::span(pieces_).first(count_))) {
    part_->lost = true;
  }
  count_ = 0;
}

}  // namespace softhca
