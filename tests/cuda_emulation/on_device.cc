// The tests of kernels on a real GPU, compiled by nvcc. Where none can serve
// they are skipped, and the reason is printed.
#include <gtest/gtest.h>

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
