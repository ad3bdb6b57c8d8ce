// The tests of kernels on a real GPU, compiled by nvcc. Where none can serve
// the reason is printed and no test runs; gtest counts them as passed then, so
// that it is a failure where MILLRACE_TEST_CUDA_MODULE says that there is a
// GPU.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cuda_emulation/device_array.h"

extern "C" const millrace::cuda::Module* millrace_cuda_module(uint32_t version);

namespace millrace::cuda {
namespace {

class GpuEnvironment final : public testing::Environment {
 public:
  void SetUp() override {
    Device device;
    const Outcome outcome = ModuleUnderTest().open(0, &device);
    if (outcome != Outcome::kFine) {
      EXPECT_EQ(std::getenv("MILLRACE_TEST_CUDA_MODULE"), nullptr);
      GTEST_SKIP() << "no GPU can serve: outcome " << static_cast<int>(outcome)
                   << " " << device.text;
    }
    ModuleUnderTest().close(&device);
  }
};

const testing::Environment* const environment =
    testing::AddGlobalTestEnvironment(new GpuEnvironment);

}  // namespace

const Module& ModuleUnderTest() {
  return *millrace_cuda_module(kModuleVersion);
}

}  // namespace millrace::cuda
