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

namespace millrace::models::graph {

const char* EmulatedModule();  // the file that was built beside the test

// The emulated module, unless MILLRACE_TEST_CUDA_MODULE names another: the real
// one, on a machine with a GPU.
inline const char* ModuleFile() {
  const char* other = std::getenv("MILLRACE_TEST_CUDA_MODULE");
  return other != nullptr ? other : EmulatedModule();
}
inline bool Emulated() {
  return std::getenv("MILLRACE_TEST_CUDA_MODULE") == nullptr;
}

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
      DevicePrecision precision = DevicePrecision::kF32) {
    InstanceOptions options;
    auto device = OpenGraphDevice("cuda:0", precision);
    EXPECT_TRUE(device.ok()) << device.status().ToString();
    options.device = *device;
    return options;
  }
  static std::unique_ptr<ExecutionContext> Make(
      const Graph& graph, DevicePrecision precision = DevicePrecision::kF32) {
    auto context = CreateInstance(graph.Copy(), OnDevice(precision));
    CHECK(context.ok(), "the graph compiles");
    return *std::move(context);
  }
};

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
  auto graph = ImportGraph(path, nullptr);
  CHECK(graph.ok(), "the file is a graph");
  return *std::move(graph);
}

}  // namespace millrace::models::graph
