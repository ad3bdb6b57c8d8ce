// 64-bit Arm: Linux tells what the CPU has and what it saves of it.

#include <sys/auxv.h>

#include "models/cpu/cpu_features.h"

namespace millrace::models {
namespace {

// Bits of the auxiliary vector, as Linux numbers them (asm/hwcap.h), which old
// headers of the C library do not all name.
bool Hwcap(int bit) { return ((getauxval(AT_HWCAP) >> bit) & 1) != 0; }
bool Hwcap2(int bit) { return ((getauxval(AT_HWCAP2) >> bit) & 1) != 0; }

}  // namespace

bool IsOfThisArchitecture(InstructionSet set) {
  return set == InstructionSet::kNone || set == InstructionSet::kNeon ||
         set == InstructionSet::kNeonDot || set == InstructionSet::kNeonI8mm;
}

std::vector<CpuFeature> FeaturesOf(InstructionSet set) {
  if (set == InstructionSet::kNone) return {};
  if (!IsOfThisArchitecture(set)) return {{"an x86-64 CPU", false}};
  std::vector<CpuFeature> all = {{"asimd", Hwcap(1)}};
  if (set == InstructionSet::kNeon) return all;
  all.push_back({"asimddp", Hwcap(20)});
  if (set == InstructionSet::kNeonDot) return all;
  all.push_back({"i8mm", Hwcap2(13)});
  return all;
}

bool IsIntelCpu() { return false; }

}  // namespace millrace::models
