// The CUDA module with the CPU as its device: the same table that
// libmillrace_cuda.so gives, over the same kernels. One device, number 0.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cuda/module_api.h"

namespace millrace::cuda {

const Module* EmulatedModule();

// What the device has; allocations beyond it fail.
void SetEmulatedBytes(int64_t bytes);
// The call of `wait` after the next `steps` ones fails, once.
void FailWaitAfter(int steps);
// What opening device 0 gives from now on.
void SetOpenOutcome(Outcome outcome);

// An array in emulated device memory, which ends where it ends.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    const Module& module = *EmulatedModule();
    const auto bytes = static_cast<int64_t>(size_ * sizeof(T));
    void* memory = nullptr;
    module.allocate(&device_, bytes, &memory);
    data_ = static_cast<T*>(memory);
    module.upload(&device_, data_, values.data(), bytes);
  }
  ~DeviceArray() { EmulatedModule()->release(&device_, data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() { return data_; }
  std::vector<T> Read() const { return {data_, data_ + size_}; }

 private:
  Device device_;
  size_t size_;
  T* data_ = nullptr;
};

}  // namespace millrace::cuda
