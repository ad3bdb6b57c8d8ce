#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/emulated_module.h"

namespace millrace::cuda {

const Module& ModuleUnderTest() { return *EmulatedModule(); }

}  // namespace millrace::cuda
