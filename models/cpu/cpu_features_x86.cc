// x86-64: CPUID tells what the CPU has and XCR0 what the operating system
// saves. What is saved matters: a guest or an old kernel may show AVX-512 in
// CPUID and still lose the upper halves of registers at a context switch.

#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdint>

#include "models/cpu/cpu_features.h"

namespace millrace::models {
namespace {

struct Leaf {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Leaf Cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Leaf r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

// Bits of XCR0: 1 SSE, 2 AVX, 5 opmask, 6 upper halves of zmm0-15, 7 zmm16-31,
// 17 and 18 tiles.
uint32_t Xcr0(bool osxsave) {
  if (!osxsave) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool Bit(uint32_t word, int bit) { return (word >> bit) & 1; }

// Linux keeps no room for tiles until a process asks (arch_prctl, 5.16 and
// later); an instruction that needs them is a fault before that.
bool AskForTiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// Names as /proc/cpuinfo writes them, so that an operator can look them up.
class Features {
 public:
  std::vector<CpuFeature> Of(InstructionSet set) const {
    switch (set) {
      case InstructionSet::kNone:
        return {};
      case InstructionSet::kAvx2:
        return Avx2();
      case InstructionSet::kAvxVnni:
        return With(Avx2(), {{"avx_vnni", HasSubleaf(4)}});
      case InstructionSet::kAvx512:
        return Avx512();
      case InstructionSet::kAvx512Vnni:
        return Avx512Vnni();
      case InstructionSet::kAvx512Vbmi:
        return With(Avx512Vnni(), {Vbmi()});
      case InstructionSet::kAvx512Bf16:
        return Avx512Bf16();
      case InstructionSet::kAmx:
        return Amx();
      case InstructionSet::kAmxInt8:
        return With(Amx(), {Vbmi()});
      case InstructionSet::kNeon:
      case InstructionSet::kNeonDot:
      case InstructionSet::kNeonI8mm:
        break;
    }
    return {{"a 64-bit Arm CPU", false}};
  }

 private:
  using List = std::vector<CpuFeature>;

  static List With(List all, const List& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // A bit of EAX of leaf 7, subleaf 1, where there is that.
  bool HasSubleaf(int bit) const {
    return seven_.a >= 1 && Bit(Cpuid(7, 1).a, bit);
  }

  List Avx2() const {
    return {{"fma", Bit(one_.c, 12)},
            {"f16c", Bit(one_.c, 29)},
            {"avx2", Bit(seven_.b, 5)},
            {"ymm registers saved by the operating system", (xcr0_ & 6) == 6}};
  }
  List Avx512() const {
    return With(Avx2(), {{"avx512f", Bit(seven_.b, 16)},
                         {"avx512dq", Bit(seven_.b, 17)},
                         {"avx512bw", Bit(seven_.b, 30)},
                         {"avx512vl", Bit(seven_.b, 31)},
                         {"zmm registers saved by the operating system",
                          (xcr0_ & 0xe6) == 0xe6}});
  }
  List Avx512Vnni() const {
    return With(Avx512(), {{"avx512_vnni", Bit(seven_.c, 11)}});
  }
  CpuFeature Vbmi() const { return {"avx512_vbmi", Bit(seven_.c, 1)}; }
  List Avx512Bf16() const {
    return With(Avx512Vnni(), {{"avx512_bf16", HasSubleaf(5)}});
  }
  List Amx() const {
    const bool saved = Bit(xcr0_, 17) && Bit(xcr0_, 18);
    List all =
        With(Avx512Bf16(), {{"amx_tile", Bit(seven_.d, 24)},
                            {"amx_int8", Bit(seven_.d, 25)},
                            {"amx_bf16", Bit(seven_.d, 22)},
                            {"tiles saved by the operating system", saved}});
    if (saved && Bit(seven_.d, 24)) {
      all.push_back({"tiles granted by the operating system", AskForTiles()});
    }
    return all;
  }

  const Leaf one_ = Cpuid(1);
  const Leaf seven_ = Cpuid(7);
  const uint32_t xcr0_ = Xcr0(Bit(one_.c, 27));
};

}  // namespace

bool IsOfThisArchitecture(InstructionSet set) {
  return set < InstructionSet::kNeon;
}

std::vector<CpuFeature> FeaturesOf(InstructionSet set) {
  return Features().Of(set);
}

bool IsIntelCpu() { return __builtin_cpu_is("intel") != 0; }

}  // namespace millrace::models
