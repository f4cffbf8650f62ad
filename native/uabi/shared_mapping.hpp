// Memory of a program that is a file in memory (memfd, tmpfs, hugetlbfs), mapped here as well: what
// moves to and from it is copied once, and atomics are the processor's.
#pragma once

#include <cstdint>
#include <memory>

#include "memory/address_space.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

class SharedMapping final : public AddressSpace {
 public:
  // Does not keep the descriptor. EOPNOTSUPP: not a file in memory, whose accesses could wait for
  // somebody; else what mmap(2) says.
  static Result<std::shared_ptr<SharedMapping>> make(int file, std::uint64_t offset,
                                                     std::uint64_t length, bool writable);
  ~SharedMapping() override;
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  // Where the byte at `offset` lies. A file that is cut short under us gives false, as all memory
  // of this process does.
  std::uint64_t address() const { return address_; }

  bool is_direct() const override { return true; }
  bool copy_in(std::uint64_t address, ByteSpan to) override {
    return process_space().copy_in(address, to);
  }
  bool copy_out(std::uint64_t address, ByteView from) override {
    return process_space().copy_out(address, from);
  }
  bool fetch_add(std::uint64_t address, std::uint64_t addend, std::uint64_t& original) override {
    return process_space().fetch_add(address, addend, original);
  }
  bool compare_swap(std::uint64_t address, std::uint64_t compare, std::uint64_t swap,
                    std::uint64_t& original) override {
    return process_space().compare_swap(address, compare, swap, original);
  }

 private:
  SharedMapping(void* begin, std::uint64_t bytes, std::uint64_t address)
      : begin_(begin), bytes_(bytes), address_(address) {}

  void* const begin_;
  const std::uint64_t bytes_;
  const std::uint64_t address_;
};

}  // namespace softhca
