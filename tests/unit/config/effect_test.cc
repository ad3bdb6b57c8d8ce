#include "config/effect.h"

#include <gtest/gtest.h>

namespace millrace::config {
namespace {

using Sentences = std::vector<std::string>;

// Of one model, given by flags.
Sentences OfFlags(std::vector<std::pair<std::string, std::string>> flags,
                  const EffectFacts& facts,
                  std::vector<ModelSettings> models = {{.path = "m"}}) {
  Sources sources;
  sources.flags = std::move(flags);
  sources.models = std::move(models);
  sources.getenv = [](const std::string& name) {
    return name == "MILLRACE_MAX_NUM_SEQS" ? std::optional<std::string>("4")
                                           : std::nullopt;
  };
  const auto loaded = Load(sources);
  EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
  return SettingsWithoutEffect(*loaded, facts);
}

const EffectFacts kText = {.is_graph = {false}, .num_cores = 2};
const EffectFacts kGraph = {.is_graph = {true}, .num_cores = 2};

TEST(Effect, SettingsOfTheOtherKindOfModel) {
  EXPECT_EQ(OfFlags({{"precision", "int8"}}, kText),
            (Sentences{"--precision has no effect: it is for graphs, and none "
                       "is served; language models have --compute-dtype and "
                       "--quantize"}));
  EXPECT_EQ(
      OfFlags({{"max-model-len", "64"}}, kGraph),
      (Sentences{"--max-model-len has no effect: it is for language models, "
                 "and none is served; the sizes of a graph's inputs come with "
                 "each request",
                 "MILLRACE_MAX_NUM_SEQS has no effect: it is for language "
                 "models, and none is served; graphs have --max-batch-size"}));
}

TEST(Effect, GraphsHeedTheDevice) {
  for (const std::string& each : OfFlags({{"device", "cpu"}}, kGraph)) {
    EXPECT_EQ(each.find("--device"), std::string::npos) << each;
  }
}

TEST(Effect, BothKindsHeedTheGemmBackendOnAGpu) {
  for (const EffectFacts& facts : {kGraph, kText}) {
    const auto said = [&](const std::string& device) {
      std::string text;
      for (const std::string& each :
           OfFlags({{"device", device}, {"gemm-backend", "cublaslt"}}, facts)) {
        if (each.starts_with("--gemm-backend")) text += each;
      }
      return text;
    };
    EXPECT_EQ(said("cuda:0"), "");
    EXPECT_EQ(said("cpu"), "--gemm-backend has no effect: device is cpu");
  }
}

TEST(Effect, ConvolutionsAreComputedByALibraryOnAGpuAlone) {
  const auto said = [](const std::string& device, const EffectFacts& facts) {
    std::string text;
    for (const std::string& each :
         OfFlags({{"device", device}, {"conv-backend", "cudnn"}}, facts)) {
      if (each.starts_with("--conv-backend")) text += each;
    }
    return text;
  };
  EXPECT_EQ(said("cuda:0", kGraph), "");
  EXPECT_EQ(said("cpu", kGraph), "--conv-backend has no effect: device is cpu");
  EXPECT_EQ(said("cuda:0", kText),
            "--conv-backend has no effect: it is for graphs, and none is "
            "served");
}

TEST(Effect, AsyncSchedulingSaysWhereItNeverActs) {
  const auto said = [](std::vector<std::pair<std::string, std::string>> flags,
                       const std::string& device = "cuda:0") {
    flags.emplace_back("device", device);
    flags.emplace_back("async-scheduling", "false");
    std::string text;
    for (const std::string& each : OfFlags(std::move(flags), kText)) {
      if (each.starts_with("--async-scheduling")) text += each;
    }
    return text;
  };
  const std::string none = "--async-scheduling has no effect: ";
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({{"speculative-model", "small.gguf"}}, "cpu"),
            none + "device is cpu");
  EXPECT_EQ(said({{"tensor-parallel-size", "2"}}),
            none +
                "tensor_parallel_size is above 1, and such steps are read "
                "one by one");
  EXPECT_EQ(said({{"speculative-model", "small.gguf"}}),
            none +
                "there is a speculative_model, which computes between two "
                "steps");
  EXPECT_EQ(said({{"kv-cache-dir", "/tmp/pages"}}),
            none +
                "there is a kv_cache_dir, which pages are written to "
                "between two steps");
}

TEST(Effect, AGeneralSettingMayServeOneOfTwoModels) {
  EXPECT_EQ(OfFlags({{"precision", "bf16"}, {"max-model-len", "64"}},
                    {.is_graph = {false, true}, .num_cores = 2},
                    {{.path = "a"}, {.path = "b"}}),
            Sentences{});
}

TEST(Effect, ARepositoryMayHoldAnyKind) {
  EXPECT_EQ(OfFlags({{"precision", "bf16"}, {"model-repository", "x"}},
                    {.is_graph = {}, .num_cores = 2}, {}),
            Sentences{});
}

TEST(Effect, MoreThreadsThanCores) {
  EXPECT_EQ(OfFlags({{"threads", "8"}}, kText),
            (Sentences{"--threads is 8 but this process may use 2 physical "
                       "cores: 2 compute"}));
  EXPECT_EQ(OfFlags({{"threads", "2"}}, kText), Sentences{});
}

TEST(Effect, SettingsThatAnotherOneMakesMeaningless) {
  EXPECT_EQ(OfFlags({{"model-control-mode", "poll"}}, kText),
            (Sentences{"--model-control-mode has no effect: there is no "
                       "model_repository"}));
  EXPECT_EQ(
      OfFlags({{"speculative-method", "none"}, {"num-speculative-tokens", "3"}},
              kText),
      (Sentences{"--num-speculative-tokens has no effect: "
                 "speculative_method is none"}));
  EXPECT_EQ(OfFlags({{"enforce-eager", "true"}}, kText),
            (Sentences{"--enforce-eager has no effect: device is cpu"}));
  EXPECT_EQ(OfFlags({{"enforce-eager", "true"}, {"device", "auto"}}, kText),
            Sentences{});
  EXPECT_EQ(
      OfFlags({{"precision", "tf32"}, {"max-precision-error", "0.1"}}, kGraph)
          .back(),
      "--max-precision-error has no effect: precision is tf32, which is "
      "served without a comparison");
  EXPECT_EQ(OfFlags({{"precision-samples", "x.npz"}}, kText).size(), 1u)
      << "one reason is enough";
}

TEST(Effect, DefaultsAreNotWarnedOf) {
  EXPECT_EQ(OfFlags({}, kText), Sentences{});
}

}  // namespace
}  // namespace millrace::config
