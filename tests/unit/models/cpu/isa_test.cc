// Choosing a kernel table: what is listed, what can be forced, what an error
// says.

#include "models/cpu/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/cpu/arm_kernels.h"
#include "models/cpu/bf16_rate.h"

namespace millrace::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::optional<IsaChoice> FindTable(std::string_view name) {
  for (const IsaChoice& choice : ListKernels()) {
    if (name == choice.name) return choice;
  }
  return std::nullopt;
}

TEST(Isa, ScalarIsAlwaysUsableAndListedFirst) {
  const auto choices = ListKernels();
  ASSERT_GE(choices.size(), 1u);
  EXPECT_STREQ(choices[0].name, "scalar");
  EXPECT_EQ(choices[0].missing, "");
  EXPECT_EQ(choices[0].kernels, ScalarKernels());
}

// Those of another architecture are not listed.
TEST(Isa, TheTablesOfThisArchitectureAreListedSlowestFirst) {
  std::vector<std::string> names;
  for (const IsaChoice& choice : ListKernels()) names.push_back(choice.name);
#if defined(__x86_64__)
  EXPECT_THAT(names, ElementsAre("scalar", "avx2", "avxvnni", "avx512vnni",
                                 "avx512bf16", "amx"));
#elif defined(__aarch64__)
  EXPECT_THAT(names, ElementsAre("scalar", "neon", "neondot", "neoni8mm"));
#else
  EXPECT_THAT(names, ElementsAre("scalar"));
#endif
}

TEST(Isa, AutoIsTheLastUsableOfTheListThatItMayChoose) {
  const KernelTable* best = nullptr;
  for (const IsaChoice& choice : ListKernels()) {
    if (choice.missing.empty() && choice.automatic) best = choice.kernels;
    EXPECT_EQ(choice.left_out.empty() || !choice.automatic, true);
  }
  auto chosen = ChooseKernels("auto");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, best);
}

TEST(Isa, AutoTakesBf16PairsOnlyWhereTheyAreFasterThanF32) {
  const auto found = FindTable("avx512bf16");
  if (!found.has_value()) GTEST_SKIP() << "avx512bf16 is of x86-64";
  const IsaChoice choice = *found;
  if (!choice.missing.empty()) GTEST_SKIP() << "it lacks " << choice.missing;
  const bool fast = IsFastBf16(Bf16PairRate());
  EXPECT_EQ(choice.automatic, fast) << Bf16PairRate();
  EXPECT_EQ(choice.left_out.empty(), fast);
  EXPECT_EQ(FindBf16Products("avx512bf16"), Avx512Bf16Products());
  if (!fast) {
    EXPECT_NE(FindBf16Products("auto"), Avx512Bf16Products());
    EXPECT_NE(*ChooseKernels("auto"), choice.kernels);
  }
}

std::vector<IsaChoice> ThreeTables() {
  return {{"plain", nullptr, "", true, ""},
          {"pairs", nullptr, "", true, ""},
          {"tiles", nullptr, "", true, ""}};
}

TEST(Isa, TheReasonForAutoNamesWhatKeepsFasterTablesOut) {
  auto choices = ThreeTables();
  EXPECT_EQ(WhyAuto(choices),
            "tiles is the fastest that runs here: the CPU has its instructions "
            "and the operating system saves its registers");
  choices[1].automatic = false;
  choices[1].left_out = "slow";
  EXPECT_THAT(WhyAuto(choices), ::testing::StartsWith("tiles is the fastest"));
  EXPECT_THAT(WhyAuto(choices), ::testing::Not(HasSubstr("slow")));
  choices[2].missing = "amx_tile, amx_int8";
  EXPECT_EQ(WhyAuto(choices),
            "plain is the fastest that runs here: pairs is left out: slow; "
            "tiles cannot run, it lacks amx_tile, amx_int8");
}

// The choice decides about bits, so it may not hang on noise: CPUs known so far
// are at 0.5 (Intel) and at 2 (AMD).
TEST(Isa, TheRateOfBf16PairsIsFarFromTheLimit) {
  EXPECT_TRUE(IsFastBf16(2));
  EXPECT_FALSE(IsFastBf16(0.5));
  EXPECT_FALSE(IsFastBf16(0));  // no AVX-512 BF16
  const double rate = Bf16PairRate();
  EXPECT_EQ(rate, Bf16PairRate());
  const auto pairs = FindTable("avx512bf16");
  if (Avx512Bf16Kernels() != nullptr) {  // else the table is not in this build
    EXPECT_EQ(rate != 0, pairs.has_value() && pairs->missing.empty());
  }
  EXPECT_FALSE(rate > 1.1 && rate < 1.6) << rate;
}

TEST(Isa, ForcingATableGivesItOrNamesWhatIsMissing) {
  for (const IsaChoice& choice : ListKernels()) {
    auto chosen = ChooseKernels(choice.name);
    if (choice.missing.empty()) {
      ASSERT_TRUE(chosen.ok()) << chosen.status().ToString();
      EXPECT_STREQ((*chosen)->name, choice.name);
    } else {
      ASSERT_FALSE(chosen.ok());
      EXPECT_EQ(chosen.status().code(), StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(chosen.status().message()),
                  HasSubstr(choice.missing));
    }
  }
}

TEST(Isa, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  auto chosen = ChooseKernels("sse9");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidArgument);
  std::string known = "'sse9' but must be one of auto";
  for (const IsaChoice& choice : ListKernels()) {
    known += std::string(", ") + choice.name;
  }
  EXPECT_THAT(std::string(chosen.status().message()), HasSubstr(known));
}

TEST(Isa, TablesAreComplete) {
  for (const IsaChoice& choice : ListKernels()) {
    if (choice.kernels == nullptr) continue;
    const KernelTable& table = *choice.kernels;
    EXPECT_STREQ(table.name, choice.name);
    EXPECT_TRUE(table.row_group == 8 || table.row_group == 16);
    EXPECT_TRUE(table.group_bytes && table.pack_group && table.linear &&
                table.unpack_row && table.quantize_row && table.rest_of_row &&
                table.rms_norm && table.add && table.silu_mul &&
                table.gelu_mul && table.soft_cap && table.rope && table.scale &&
                table.attend_scratch_floats && table.attend && table.merge &&
                table.write_kv && table.max && table.sum_exp)
        << table.name;
    EXPECT_EQ(table.round_row != nullptr,
              std::string(choice.name) == "avx512bf16" ||
                  std::string(choice.name) == "amx");
  }
}

TEST(Isa, DenseTablesFollowTheNamesOfTheOthers) {
  EXPECT_EQ(*ChooseDense("scalar"), ScalarDense());
  for (const char* isa : {"avx2", "avxvnni"}) {
    const auto chosen = ChooseDense(isa);
    if (chosen.ok()) {
      EXPECT_EQ(*chosen, Avx2Dense());
    }
  }
  for (const char* isa : {"avx512", "avx512vnni", "avx512bf16", "amx"}) {
    const auto chosen = ChooseDense(isa);
    if (chosen.ok()) {
      EXPECT_EQ(*chosen, Avx512Dense());
      EXPECT_EQ(*ChooseDense("auto"), Avx512Dense());
    } else {
      EXPECT_EQ(chosen.status().code(), StatusCode::kFailedPrecondition);
    }
  }
  for (const char* isa : {"neon", "neondot", "neoni8mm"}) {
    const auto chosen = ChooseDense(isa);
    if (chosen.ok()) {
      EXPECT_EQ(*chosen, NeonDense());
      EXPECT_EQ(*ChooseDense("auto"), NeonDense());
    } else {
      EXPECT_EQ(chosen.status().code(), StatusCode::kFailedPrecondition);
    }
  }
  EXPECT_EQ(ChooseDense("sse9").status().code(), StatusCode::kInvalidArgument);
}

// bf16 does not say whether there are permutations of bytes.
TEST(Isa, NewerNamesTakeWhatInt8TableThereIs) {
  const auto vbmi = ChooseInt8("avx512vbmi");
  const auto vnni = ChooseInt8("avx512vnni");
  for (const char* isa : {"avx512", "avx512bf16"}) {
    const auto chosen = ChooseInt8(isa);
    if (vbmi.ok()) {
      EXPECT_EQ(*chosen, Avx512VbmiInt8()) << isa;
    } else if (vnni.ok()) {
      EXPECT_EQ(*chosen, Avx512VnniInt8()) << isa;
    } else if (chosen.ok()) {
      EXPECT_STRNE((*chosen)->name, "avx512vnni") << isa;
    }
  }
  if (vnni.ok()) {
    EXPECT_EQ(*vnni, Avx512VnniInt8());
  }
}

TEST(Isa, TheInt8TablesOfArmFollowTheNamesOfTheOthers) {
  const Int8Table* fastest = nullptr;
  for (const auto& [isa, table] : {std::pair{"neon", NeonInt8()},
                                   {"neondot", NeonDotInt8()},
                                   {"neoni8mm", NeonI8mmInt8()}}) {
    const auto chosen = ChooseInt8(isa);
    EXPECT_EQ(chosen.ok(), ChooseKernels(isa).ok()) << isa;
    if (!chosen.ok()) continue;
    EXPECT_EQ(*chosen, table) << isa;
    fastest = table;
  }
  if (fastest != nullptr) {
    EXPECT_EQ(*ChooseInt8("auto"), fastest);
  }
}

// Whatever the operating system says of its tiles, it says to both.
TEST(Isa, TilesAreTakenForInt8WhereThereAreAny) {
  const auto amx = ChooseInt8("amx");
  if (amx.ok()) {
    EXPECT_EQ(*amx, AmxInt8());
    EXPECT_EQ(*ChooseInt8("auto"), AmxInt8());
  } else {
    EXPECT_EQ(amx.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(*ChooseInt8("auto"), AmxInt8());
  }
  EXPECT_EQ(amx.ok(), ChooseKernels("amx").ok() &&
                          Avx512VbmiInt8() != nullptr &&
                          ChooseInt8("avx512vbmi").ok());
}

}  // namespace
}  // namespace millrace::models
