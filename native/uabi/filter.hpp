// The BPF program that decides which system calls of a program are ours to answer. It is inherited
// by everything that the program starts, and costs each other system call a few comparisons.
#pragma once

#include <cstdint>
#include <vector>

#include "uabi/seccomp_abi.hpp"
#include "uabi/system_calls.hpp"

namespace softhca {

// Numbers that our descriptors have in programs, both included. Descriptors are recognised by their
// file, whatever their number; ranges keep the kernel from asking about all the others.
struct DescriptorRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// Doorbells of programs are asked about, or they are written to the file behind the descriptor,
// which nobody is asked about.
enum class Doorbells : std::uint8_t { asked, written };

std::vector<sock_filter> build_filter(const Architecture& architecture,
                                      const std::vector<DescriptorRange>& ours,
                                      Doorbells doorbells = Doorbells::asked);

}  // namespace softhca
