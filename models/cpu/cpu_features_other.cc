// An architecture for which there are no kernels but the scalar ones.

#include "models/cpu/cpu_features.h"

namespace millrace::models {

bool IsOfThisArchitecture(InstructionSet set) {
  return set == InstructionSet::kNone;
}

std::vector<CpuFeature> FeaturesOf(InstructionSet set) {
  if (set == InstructionSet::kNone) return {};
  return {{"an x86-64 or a 64-bit Arm CPU", false}};
}

bool IsIntelCpu() { return false; }

}  // namespace millrace::models
