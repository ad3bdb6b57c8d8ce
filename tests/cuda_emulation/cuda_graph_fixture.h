// Graphs compiled for the GPU that the CPU emulates, or for a real one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/gpu/cuda_context.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/unit/models/graph/tiny_model_arrays.h"

namespace millrace::models::graph {

class CudaGraph : public testing::Test {
 protected:
  CudaGraph() { setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1); }
  ~CudaGraph() override {
    setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1);
    SetBytes(int64_t{1} << 30);
    unsetenv("MILLRACE_EMULATED_BYTES");
    unsetenv("MILLRACE_CUDA_MODULE");
  }
  // Heeded when the module's entry is called next.
  static void SetBytes(int64_t bytes) {
    setenv("MILLRACE_EMULATED_BYTES", std::to_string(bytes).c_str(), 1);
    EXPECT_TRUE(OpenCudaModule().ok());
  }
  static int64_t FreeBytes() {
    cuda::Device device;
    const auto module = OpenCudaModule();
    EXPECT_TRUE(module.ok());
    (*module)->open(0, &device);
    (*module)->close(&device);
    return device.free_bytes;
  }
  static InstanceOptions OnDevice(
      DevicePrecision precision = DevicePrecision::kF32,
      DeviceLibraries libraries = {}) {
    InstanceOptions options;
    options.device = Must(OpenGraphDevice("cuda:0", precision, libraries));
    return options;
  }
  static std::unique_ptr<ExecutionContext> Make(
      const Graph& graph, DevicePrecision precision = DevicePrecision::kF32,
      DeviceLibraries libraries = {}) {
    return Must(CreateInstance(graph.Copy(), OnDevice(precision, libraries)));
  }
};

// A product of rounded factors is off by 2^-10 of itself (tf32, f16) or 2^-7
// (bf16) at most. The errors of terms and layers add as their squares do, or
// little more.
inline double ToleranceOf(DevicePrecision precision) {
  switch (precision) {
    case DevicePrecision::kF32:
      break;
    case DevicePrecision::kTf32:
    case DevicePrecision::kF16:
      return 0x1p-8;
    case DevicePrecision::kBf16:
      return 0x1p-5;
  }
  return kTolerance;
}

// Row i of every input that has as many rows as the first.
inline std::vector<Tensor> Row(const std::vector<Tensor>& inputs, int64_t i) {
  const int64_t rows = inputs[0].shape()[0];
  std::vector<Tensor> one;
  for (const Tensor& input : inputs) {
    Shape shape = input.shape();
    const int64_t bytes = input.num_bytes() / rows;
    shape[0] = 1;
    one.push_back(Tensor::Make(input.dtype(), shape));
    std::memcpy(one.back().bytes(), input.bytes() + i * bytes,
                static_cast<size_t>(bytes));
  }
  return one;
}

inline bool SameBytes(const std::vector<Tensor>& a,
                      const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].num_bytes() != b[i].num_bytes() ||
        std::memcmp(a[i].bytes(), b[i].bytes(),
                    static_cast<size_t>(a[i].num_bytes())) != 0) {
      return false;
    }
  }
  return true;
}

inline Graph Import(const std::string& path) {
  return Must(ImportGraph(path, nullptr));
}

}  // namespace millrace::models::graph
