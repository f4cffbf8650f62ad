// Instances of Python types that are made and freed for each message.
#pragma once

#include <Python.h>

#include <array>
#include <cstddef>

namespace softhca {

// Memory of instances that are gone, for the next ones of the same size. Belongs to who holds the
// GIL. Whoever gives an instance back leaves it untracked and without references.
class InstancePool {
 public:
  // An instance of `type`, untracked, its fields as they were given back; null if there is none.
  PyObject* take(PyTypeObject* type) {
    return count_ == 0 ? nullptr : PyObject_Init(instances_[--count_], type);
  }
  // False: there are enough of them.
  bool give(PyObject* instance) {
    if (count_ == instances_.size()) return false;
    instances_[count_++] = instance;
    return true;
  }

 private:
  // More than one poll makes; a program that keeps more of them alive pays for their memory anyway.
  static constexpr std::size_t kMost = 128;
  std::array<PyObject*, kMost> instances_;
  std::size_t count_ = 0;
};

}  // namespace softhca
