#include "memory/address_space.hpp"
#include "memory/guarded_access.hpp"

namespace softhca {
namespace {

class ProcessSpace final : public AddressSpace {
 public:
  bool is_direct() const override { return true; }
  bool copy_in(std::uint64_t address, ByteSpan to) override {
    return guarded_copy(to.data(), pointer(address), to.size()) == 0;
  }
  bool copy_out(std::uint64_t address, ByteView from) override {
    return guarded_copy(pointer(address), from.data(), from.size()) == 0;
  }
  bool fetch_add(std::uint64_t address, std::uint64_t addend, std::uint64_t& original) override {
    return guarded_fetch_add(pointer(address), addend, &original);
  }
  bool compare_swap(std::uint64_t address, std::uint64_t compare, std::uint64_t swap,
                    std::uint64_t& original) override {
    return guarded_compare_swap(pointer(address), compare, swap, &original);
  }

 private:
  static void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }
};

}  // namespace

AddressSpace& process_space() {
  static ProcessSpace space;
  install_fault_guard();
  return space;
}

}  // namespace softhca
