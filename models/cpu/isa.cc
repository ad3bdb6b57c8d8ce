// Which table a name stands for, and which of them "auto" takes. What a table
// needs of the machine: cpu_features.h.

#include "models/cpu/isa.h"

#include <cstdio>
#include <string>

#include "models/cpu/arm_kernels.h"
#include "models/cpu/bf16_rate.h"
#include "models/cpu/cpu_features.h"

namespace millrace::models {
namespace {

// What keeps a table from running here; empty: nothing.
std::string Missing(const void* table, InstructionSet set) {
  std::string missing;
  for (const CpuFeature& feature : FeaturesOf(set)) {
    if (feature.present) continue;
    if (!missing.empty()) missing += ", ";
    missing += feature.name;
  }
  if (missing.empty() && table == nullptr) {
    missing = "these kernels were not compiled into this binary";
  }
  return missing;
}

Status CannotRun(std::string_view isa, const std::string& missing) {
  return FailedPrecondition("isa '" + std::string(isa) +
                            "' cannot run on this machine, it lacks: " +
                            missing + "; use 'auto' or force another table")
      .At("isa");
}

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
  using Set = InstructionSet;
  struct Row {
    const char* name;
    const KernelTable* table;
    Set set;
  };
  const Row rows[] = {{"scalar", ScalarKernels(), Set::kNone},
                      {"avx2", Avx2Kernels(), Set::kAvx2},
                      {"avxvnni", AvxVnniKernels(), Set::kAvxVnni},
                      {"avx512vnni", Avx512VnniKernels(), Set::kAvx512Vnni},
                      {"avx512bf16", Avx512Bf16Kernels(), Set::kAvx512Bf16},
                      {"amx", AmxKernels(), Set::kAmx},
                      {"neon", NeonKernels(), Set::kNeon},
                      {"neondot", NeonDotKernels(), Set::kNeonDot},
                      {"neoni8mm", NeonI8mmKernels(), Set::kNeonI8mm}};
  const std::string bf16 = "BF16 weights, whose rows are rounded to bf16";
  std::vector<IsaChoice> all;
  for (const Row& row : rows) {
    if (!IsOfThisArchitecture(row.set)) continue;
    IsaChoice choice{row.name, row.table, Missing(row.table, row.set), true,
                     ""};
    if (row.set == Set::kAvx512Bf16) {
      LeaveOutSlowBf16(choice);
      choice.other_bits = {bf16};
    }
    if (row.set == Set::kAmx) {
      choice.other_bits = {bf16,
                           "prompts, in bf16 where compute_dtype is auto"};
    }
    all.push_back(choice);
  }
  return all;
}

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
  using Set = InstructionSet;
  struct Row {
    bool is_named;
    const DenseTable* table;
    Set set;
  };
  const Row rows[] = {
      {wanted.starts_with("avx512") || wanted == "amx", Avx512Dense(),
       Set::kAvx512},
      {wanted == "avx2" || wanted == "avxvnni", Avx2Dense(), Set::kAvx2},
      {wanted == "neon" || wanted == "neondot" || wanted == "neoni8mm",
       NeonDense(), Set::kNeon},
      {wanted == "scalar", ScalarDense(), Set::kNone}};
  for (const Row& row : rows) {
    if (!row.is_named && wanted != "auto") continue;
    const std::string missing = Missing(row.table, row.set);
    if (missing.empty()) return row.table;
    if (row.is_named) return CannotRun(wanted, missing);
  }
  return InvalidArgument("isa is '" + std::string(wanted) +
                         "' but must be one of auto, scalar, avx2, avx512, "
                         "neon, or a name that language models know")
      .At("isa");
}

StatusOr<const Int8Table*> ChooseInt8(std::string_view wanted) {
  using Set = InstructionSet;
  struct Row {
    std::string_view name;
    const Int8Table* table;
    Set set;
  };
  const Row rows[] = {{"amx", AmxInt8(), Set::kAmxInt8},
                      {"avx512vbmi", Avx512VbmiInt8(), Set::kAvx512Vbmi},
                      {"avx512vnni", Avx512VnniInt8(), Set::kAvx512Vnni},
                      {"avxvnni", AvxVnniInt8(), Set::kAvxVnni},
                      {"avx2", Avx2Int8(), Set::kAvx2},
                      {"neoni8mm", NeonI8mmInt8(), Set::kNeonI8mm},
                      {"neondot", NeonDotInt8(), Set::kNeonDot},
                      {"neon", NeonInt8(), Set::kNeon},
                      {"scalar", ScalarInt8(), Set::kNone}};
  const bool bf16 = wanted == "avx512bf16";
  for (const Row& row : rows) {
    const bool is_named =
        wanted == row.name || (bf16 && row.name == "avx512vnni");
    const bool may = is_named || wanted == "auto" ||
                     (wanted == "avx512" && row.set <= Set::kAvx512Vbmi) ||
                     (bf16 && row.name == "avx512vbmi");
    if (!may) continue;
    const std::string missing = Missing(row.table, row.set);
    if (missing.empty()) return row.table;
    if (is_named) return CannotRun(wanted, missing);
  }
  return InvalidArgument("isa is '" + std::string(wanted) +
                         "' but must be one of auto, scalar, avx2, avxvnni, "
                         "avx512, avx512vnni, avx512vbmi, amx, neon, neondot, "
                         "neoni8mm")
      .At("isa");
}

const DenseProducts* FindBf16Products(std::string_view wanted) {
  const DenseProducts* tiles = AmxBf16Products();
  if ((wanted == "auto" || wanted == "amx") &&
      Missing(tiles, InstructionSet::kAmx).empty()) {
    return tiles;
  }
  const bool allowed = wanted == "auto" || wanted == "avx512" ||
                       wanted == "avx512bf16" || wanted == "amx";
  const DenseProducts* products = Avx512Bf16Products();
  const bool can_run = Missing(products, InstructionSet::kAvx512Bf16).empty();
  if (!allowed || !can_run) return nullptr;
  const bool forced = wanted == "avx512bf16";
  return forced || IsFastBf16(Bf16PairRate()) ? products : nullptr;
}

bool AsksAllCaches() { return IsIntelCpu(); }

}  // namespace millrace::models
