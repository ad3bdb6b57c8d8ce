// Memory of the device that tests of kernels run on.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "models/cuda/module_api.h"

namespace millrace::cuda {

// The module whose kernels a test calls: the emulated one, or in
// cuda_device_test the real one.
const Module& ModuleUnderTest();

// An array on the device; on the emulated one it ends at a page that cannot be
// touched.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    void* memory = nullptr;
    ModuleUnderTest().allocate(&device_, bytes(), &memory);
    data_ = static_cast<T*>(memory);
    ModuleUnderTest().upload(&device_, data_, values.data(), bytes());
  }
  ~DeviceArray() { ModuleUnderTest().release(&device_, data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() { return data_; }
  // Once all that was launched has run; what went wrong there fails the test.
  std::vector<T> Read() {
    std::vector<T> values(size_);
    ModuleUnderTest().download(&device_, values.data(), data_, bytes());
    EXPECT_EQ(ModuleUnderTest().wait(&device_), Outcome::kFine) << device_.text;
    return values;
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(size_ * sizeof(T)); }

  Device device_;  // its default stream
  size_t size_;
  T* data_ = nullptr;
};

}  // namespace millrace::cuda
