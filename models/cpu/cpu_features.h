// What each set of kernels needs of the CPU and of the operating system, which
// must save the registers, and whether this machine has it. One source file for
// each architecture.
//
// Thread-safe: asks anew at every call. On a CPU with AMX a question about kAmx
// also asks Linux to save its tiles for the whole process; it may refuse.
#pragma once

#include <vector>

namespace millrace::models {

// The sets that some kernel table is compiled for. Those of AVX hold each the
// one before, and so do those of NEON.
enum class InstructionSet {
  kNone,  // what any CPU has
  kAvx2,
  kAvxVnni,
  kAvx512,
  kAvx512Vnni,
  kAvx512Vbmi,
  kAvx512Bf16,
  kAmx,
  kAmxInt8,  // with AVX-512 VBMI
  kNeon,
  kNeonDot,   // with sdot
  kNeonI8mm,  // with smmla and usdot
};

struct CpuFeature {
  const char* name;  // as /proc/cpuinfo writes it, or in words
  bool present;
};

// Whether CPUs of the architecture that this is compiled for may have it.
bool IsOfThisArchitecture(InstructionSet set);

// What the set needs. One of another architecture needs a CPU of that.
std::vector<CpuFeature> FeaturesOf(InstructionSet set);

bool IsIntelCpu();

}  // namespace millrace::models
