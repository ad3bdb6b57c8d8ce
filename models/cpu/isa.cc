// Asks CPUID what the CPU has and XCR0 what the operating system saves; on Arm
// Linux reports both (HWCAP). What is saved matters: a guest or an old
// kernel may show AVX-512 in CPUID and still lose the upper halves of registers
// at a context switch.

#include "models/cpu/isa.h"

#include <cstdint>
#include <cstdio>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "models/cpu/arm_kernels.h"
#include "models/cpu/bf16_rate.h"

namespace millrace::models {
namespace {

struct Feature {
  const char* name;
  bool present;
};

#if defined(__x86_64__)

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

// Names as /proc/cpuinfo writes them, so that an operator can look them up.
std::vector<Feature> Avx2Features() {
  const Leaf one = Cpuid(1);
  const Leaf seven = Cpuid(7);
  const uint32_t xcr0 = Xcr0(Bit(one.c, 27));
  return {{"fma", Bit(one.c, 12)},
          {"f16c", Bit(one.c, 29)},
          {"avx2", Bit(seven.b, 5)},
          {"ymm registers saved by the operating system", (xcr0 & 6) == 6}};
}

std::vector<Feature> AvxVnniFeatures() {
  std::vector<Feature> all = Avx2Features();
  const bool has_subleaf = Cpuid(7).a >= 1;
  all.push_back({"avx_vnni", has_subleaf && Bit(Cpuid(7, 1).a, 4)});
  return all;
}

std::vector<Feature> Avx512Features() {
  std::vector<Feature> all = Avx2Features();
  const Leaf seven = Cpuid(7);
  const uint32_t xcr0 = Xcr0(Bit(Cpuid(1).c, 27));
  all.push_back({"avx512f", Bit(seven.b, 16)});
  all.push_back({"avx512dq", Bit(seven.b, 17)});
  all.push_back({"avx512bw", Bit(seven.b, 30)});
  all.push_back({"avx512vl", Bit(seven.b, 31)});
  all.push_back(
      {"zmm registers saved by the operating system", (xcr0 & 0xe6) == 0xe6});
  return all;
}

std::vector<Feature> Avx512VnniFeatures() {
  std::vector<Feature> all = Avx512Features();
  all.push_back({"avx512_vnni", Bit(Cpuid(7).c, 11)});
  return all;
}

std::vector<Feature> Avx512VbmiFeatures() {
  std::vector<Feature> all = Avx512VnniFeatures();
  all.push_back({"avx512_vbmi", Bit(Cpuid(7).c, 1)});
  return all;
}

std::vector<Feature> Avx512Bf16Features() {
  std::vector<Feature> all = Avx512VnniFeatures();
  const bool has_subleaf = Cpuid(7).a >= 1;
  all.push_back({"avx512_bf16", has_subleaf && Bit(Cpuid(7, 1).a, 5)});
  return all;
}

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

std::vector<Feature> AmxFeatures() {
  std::vector<Feature> all = Avx512Bf16Features();
  const Leaf seven = Cpuid(7);
  const uint32_t xcr0 = Xcr0(Bit(Cpuid(1).c, 27));
  all.push_back({"amx_tile", Bit(seven.d, 24)});
  all.push_back({"amx_int8", Bit(seven.d, 25)});
  all.push_back({"amx_bf16", Bit(seven.d, 22)});
  all.push_back(
      {"tiles saved by the operating system", Bit(xcr0, 17) && Bit(xcr0, 18)});
  if (all.back().present && Bit(seven.d, 24)) {
    all.push_back({"tiles granted by the operating system", AskForTiles()});
  }
  return all;
}

std::vector<Feature> AmxInt8Features() {
  std::vector<Feature> all = AmxFeatures();
  all.push_back({"avx512_vbmi", Bit(Cpuid(7).c, 1)});
  return all;
}

#else

#if defined(__aarch64__)
// Bits of AT_HWCAP, named as /proc/cpuinfo writes them.
std::vector<Feature> NeonFeatures() {
  return {{"asimd", ((getauxval(AT_HWCAP) >> 1) & 1) != 0}};
}
std::vector<Feature> NeonDotFeatures() {
  std::vector<Feature> all = NeonFeatures();
  all.push_back({"asimddp", ((getauxval(AT_HWCAP) >> 20) & 1) != 0});
  return all;
}
#endif

std::vector<Feature> Avx2Features() { return {{"an x86-64 CPU", false}}; }
std::vector<Feature> AvxVnniFeatures() { return Avx2Features(); }
std::vector<Feature> Avx512Features() { return Avx2Features(); }
std::vector<Feature> Avx512VnniFeatures() { return Avx2Features(); }
std::vector<Feature> Avx512VbmiFeatures() { return Avx2Features(); }
std::vector<Feature> Avx512Bf16Features() { return Avx2Features(); }
std::vector<Feature> AmxFeatures() { return Avx2Features(); }
std::vector<Feature> AmxInt8Features() { return Avx2Features(); }

#endif

// What keeps a table from running here; empty: nothing.
std::string Missing(const void* table, const std::vector<Feature>& features) {
  std::string missing;
  for (const Feature& feature : features) {
    if (feature.present) continue;
    if (!missing.empty()) missing += ", ";
    missing += feature.name;
  }
  if (missing.empty() && table == nullptr) {
    missing = "these kernels were not compiled into this binary";
  }
  return missing;
}

IsaChoice Examine(const char* name, const KernelTable* kernels,
                  const std::vector<Feature>& features) {
  return {name, kernels, Missing(kernels, features), true, ""};
}

Status CannotRun(std::string_view isa, const std::string& missing) {
  return FailedPrecondition("isa '" + std::string(isa) +
                            "' cannot run on this machine, it lacks: " +
                            missing + "; use 'auto' or force another table")
      .At("isa");
}

}  // namespace

#if defined(__aarch64__)

std::vector<IsaChoice> ListKernels() {
  return {Examine("scalar", ScalarKernels(), {}),
          Examine("neon", NeonKernels(), NeonFeatures()),
          Examine("neondot", NeonDotKernels(), NeonDotFeatures())};
}

#else

namespace {

void LeaveOutSlowBf16(IsaChoice& choice) {
  if (!choice.missing.empty() || IsFastBf16(Bf16PairRate())) return;
  char text[96];
  std::snprintf(text, sizeof text,
                "its bf16 pairs do %.2f of the multiply-adds of f32",
                Bf16PairRate());
  choice.automatic = false;
  choice.left_out = text;
}

}  // namespace

std::vector<IsaChoice> ListKernels() {
  std::vector<IsaChoice> all = {
      Examine("scalar", ScalarKernels(), {}),
      Examine("avx2", Avx2Kernels(), Avx2Features()),
      Examine("avxvnni", AvxVnniKernels(), AvxVnniFeatures()),
      Examine("avx512vnni", Avx512VnniKernels(), Avx512VnniFeatures()),
      Examine("avx512bf16", Avx512Bf16Kernels(), Avx512Bf16Features()),
      Examine("amx", AmxKernels(), AmxFeatures())};
  LeaveOutSlowBf16(all[4]);
  const std::string bf16 = "BF16 weights, whose rows are rounded to bf16";
  all[4].other_bits = {bf16};
  all[5].other_bits = {bf16, "prompts, in bf16 where compute_dtype is auto"};
  return all;
}

#endif

StatusOr<const KernelTable*> ChooseKernels(std::string_view wanted) {
  const std::vector<IsaChoice> choices = ListKernels();
  std::string names = "auto";
  const KernelTable* best = nullptr;
  for (const IsaChoice& choice : choices) {
    names += std::string(", ") + choice.name;
    if (choice.missing.empty() && choice.automatic) best = choice.kernels;
    if (wanted != choice.name) continue;
    if (choice.missing.empty()) return choice.kernels;
    return CannotRun(wanted, choice.missing);
  }
  if (wanted == "auto") return best;
  return InvalidArgument("isa is '" + std::string(wanted) +
                         "' but must be one of " + names)
      .At("isa");
}

std::string WhyAuto(const std::vector<IsaChoice>& choices) {
  std::string chosen;
  std::string faster;
  for (const IsaChoice& choice : choices) {
    if (choice.missing.empty() && choice.automatic) {
      chosen = choice.name;
      faster.clear();
      continue;
    }
    if (!faster.empty()) faster += "; ";
    faster +=
        choice.missing.empty()
            ? std::string(choice.name) + " is left out: " + choice.left_out
            : std::string(choice.name) + " cannot run, it lacks " +
                  choice.missing;
  }
  return chosen + " is the fastest that runs here: " +
         (faster.empty() ? "the CPU has its instructions and the operating "
                           "system saves its registers"
                         : faster);
}

StatusOr<const DenseTable*> ChooseDense(std::string_view wanted) {
#if defined(__aarch64__)
  if (wanted == "auto" || wanted == "neon" || wanted == "neondot") {
    return ScalarDense();  // none of NEON yet
  }
#endif
  const std::string no_avx2 = Missing(Avx2Dense(), Avx2Features());
  const std::string no_avx512 = Missing(Avx512Dense(), Avx512Features());
  if (wanted == "auto") {
    return no_avx512.empty() ? Avx512Dense()
           : no_avx2.empty() ? Avx2Dense()
                             : ScalarDense();
  }
  if (wanted == "scalar") return ScalarDense();
  if (wanted == "avx2" || wanted == "avxvnni") {
    if (!no_avx2.empty()) return CannotRun(wanted, no_avx2);
    return Avx2Dense();
  }
  if (wanted.starts_with("avx512") || wanted == "amx") {
    if (!no_avx512.empty()) return CannotRun(wanted, no_avx512);
    return Avx512Dense();
  }
  return InvalidArgument("isa is '" + std::string(wanted) +
                         "' but must be one of auto, scalar, avx2, avx512, or "
                         "a name that language models know")
      .At("isa");
}

StatusOr<const Int8Table*> ChooseInt8(std::string_view wanted) {
  struct Row {
    std::string_view name;
    const Int8Table* table;
    std::string missing;
  };
  const Row rows[] = {
    {"amx", AmxInt8(), Missing(AmxInt8(), AmxInt8Features())},
    {"avx512vbmi", Avx512VbmiInt8(),
     Missing(Avx512VbmiInt8(), Avx512VbmiFeatures())},
    {"avx512vnni", Avx512VnniInt8(),
     Missing(Avx512VnniInt8(), Avx512VnniFeatures())},
    {"avxvnni", AvxVnniInt8(), Missing(AvxVnniInt8(), AvxVnniFeatures())},
    {"avx2", Avx2Int8(), Missing(Avx2Int8(), Avx2Features())},
#if defined(__aarch64__)  // none of NEON yet
    {"neondot", ScalarInt8(), ""},
    {"neon", ScalarInt8(), ""},
#endif
    {"scalar", ScalarInt8(), ""}
  };
  const bool bf16 = wanted == "avx512bf16";
  for (const Row& row : rows) {
    const bool is_named =
        wanted == row.name || (bf16 && row.name == "avx512vnni");
    const bool may = is_named || wanted == "auto" ||
                     (wanted == "avx512" && row.name != "amx") ||
                     (bf16 && row.name == "avx512vbmi");
    if (may && row.missing.empty()) return row.table;
    if (is_named) return CannotRun(wanted, row.missing);
  }
  return InvalidArgument("isa is '" + std::string(wanted) +
                         "' but must be one of auto, scalar, avx2, avxvnni, "
                         "avx512, avx512vnni, avx512vbmi, amx")
      .At("isa");
}

const DenseProducts* FindBf16Products(std::string_view wanted) {
  const DenseProducts* tiles = AmxBf16Products();
  if ((wanted == "auto" || wanted == "amx") &&
      Missing(tiles, AmxFeatures()).empty()) {
    return tiles;
  }
  const bool allowed = wanted == "auto" || wanted == "avx512" ||
                       wanted == "avx512bf16" || wanted == "amx";
  const DenseProducts* products = Avx512Bf16Products();
  const bool can_run = Missing(products, Avx512Bf16Features()).empty();
  if (!allowed || !can_run) return nullptr;
  const bool forced = wanted == "avx512bf16";
  return forced || IsFastBf16(Bf16PairRate()) ? products : nullptr;
}

bool AsksAllCaches() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace millrace::models
