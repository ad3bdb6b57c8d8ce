// Adapters of tiny models: logits against those of peft and transformers; the
// same bits alone and among others; and what is said of adapters that are
// wrong. Made by tests/data/make_lora.py.
#include "models/llm/lora.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/cpu/isa.h"
#include "models/llm/live_lora.h"
#include "models/llm/lora_config.h"
#include "models/llm/lora_inspect.h"
#include "models/llm/lora_packing.h"
#include "models/llm/teacher_forcing.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/random_adapter.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kData = "tests/data/";

LlmModel LoadTiny(const std::string& base, int threads = 2,
                  const std::string& compute_dtype = "f32",
                  const std::string& lora_dtype = "auto") {
  LlmOptions options = TinyOptions(threads);
  options.settings.compute_dtype = compute_dtype;
  options.settings.lora_dtype = lora_dtype;
  options.settings.kv_cache_dtype = "f32";
  options.settings.max_model_len = 128;
  StatusOr<LlmModel> model = LoadLlm(kData + base, options);
  CHECK(model.ok(), "the tiny model loads");
  return std::move(model).value();
}

struct Case {
  const char* adapter;
  const char* base;
  const char* golden;
};

class Lora : public testing::TestWithParam<Case> {};

void ExpectLogitsOfPeft(const Case& test, const std::string& compute_dtype,
                        const std::string& lora_dtype, double tolerance) {
  std::ifstream in(std::string(kData) + test.golden + "/golden.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  const Json golden = Json::parse(in);
  const auto tokens = golden["tokens"].get<std::vector<int32_t>>();
  LlmModel model = LoadTiny(test.base, 2, compute_dtype, lora_dtype);
  const auto adapter =
      LoadLora(std::string(kData) + test.adapter, *model.lora_base);
  ASSERT_TRUE(adapter.ok()) << adapter.status().ToString();
  // Few rows a step, and many.
  for (const int32_t chunk : {2, 64}) {
    int seen = 0;
    const Status status = ScoreTokens(
        model, tokens, chunk,
        [&](int32_t position, std::span<const float> logits) {
          const auto row = golden["logits"].find(std::to_string(position));
          if (row == golden["logits"].end()) return;
          ++seen;
          for (size_t i = 0; i < logits.size(); ++i) {
            ASSERT_NEAR(logits[i], (*row)[i].get<double>(), tolerance)
                << "position " << position << ", token " << i;
          }
        },
        0, *adapter);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(seen, static_cast<int>(golden["logits"].size()));
    EXPECT_GE(seen, 3);
  }
}

// Both sides sum in f32, in other orders: as for the models themselves.
TEST_P(Lora, LogitsAreThoseOfPeft) {
  ExpectLogitsOfPeft(GetParam(), "f32", "auto", 1e-4);
  ExpectLogitsOfPeft(GetParam(), "auto", "f32", 0.02);
}

// The logits lie within 10, and the adapters move them by 0.8 to 2.8, rms. Most
// seen: 0.011 in f16, 0.22 in bf16, 0.33 in int8 (both of phi3).
TEST_P(Lora, RoundedAdaptersGiveNearlyThose) {
  ExpectLogitsOfPeft(GetParam(), "auto", "auto", 0.02);
  ExpectLogitsOfPeft(GetParam(), "f32", "f16", 0.02);
  ExpectLogitsOfPeft(GetParam(), "f32", "bf16", 0.5);
  ExpectLogitsOfPeft(GetParam(), "f32", "int8", 0.5);
}

INSTANTIATE_TEST_SUITE_P(
    Adapters, Lora,
    testing::Values(Case{"lora_llama", "hf_llama_yarn", "lora_llama"},
                    // Rows of q and k stand in another order there.
                    Case{"lora_llama", "hf_llama_yarn/model.gguf",
                         "lora_llama"},
                    Case{"lora_llama/adapter.gguf", "hf_llama_yarn/model.gguf",
                         "lora_llama"},
                    Case{"lora_phi3", "hf_phi3", "lora_phi3"},
                    Case{"lora_gpt2", "hf_gpt2", "lora_gpt2"},
                    Case{"lora_qwen2", "hf_qwen2", "lora_qwen2"}));

TEST(LoraFile, TellsBaseRankAndTargets) {
  const std::string folder = std::string(kData) + "lora_qwen2";
  EXPECT_TRUE(IsLoraFile(folder));
  EXPECT_FALSE(IsLoraFile(std::string(kData) + "hf_qwen2"));
  EXPECT_FALSE(IsLoraFile(std::string(kData) + "hf_qwen2/model.gguf"));
  const auto told = DescribeLora(folder);
  ASSERT_TRUE(told.ok()) << told.status().ToString();
  EXPECT_TRUE(told->served.ok()) << told->served.ToString();
  EXPECT_EQ(told->base, "hf_qwen2");
  ASSERT_EQ(told->targets.size(), 3u);
  const auto& down = told->targets.at("mlp.down_proj");
  EXPECT_EQ(down.matrices, 1);
  EXPECT_EQ(down.least_rank, 5);
  EXPECT_EQ(down.greatest_rank, 5);
  EXPECT_EQ(down.parameters, 5 * 48 + 32 * 5);

  const std::string file = std::string(kData) + "lora_llama/adapter.gguf";
  EXPECT_TRUE(IsLoraFile(file));
  const auto gguf = DescribeLora(file);
  ASSERT_TRUE(gguf.ok()) << gguf.status().ToString();
  EXPECT_TRUE(gguf->served.ok()) << gguf->served.ToString();
  EXPECT_EQ(gguf->family, "llama");
  EXPECT_EQ(gguf->alpha, 6);
  EXPECT_EQ(gguf->targets.size(), 7u);
  EXPECT_EQ(gguf->targets.at("attn_q").greatest_rank, 4);
}

TEST(LoraFile, WhatIsNotServedIsToldBesideWhatItHolds) {
  const std::string folder = TempPath("lora_told");
  fs::remove_all(folder);
  fs::copy(std::string(kData) + "lora_qwen2", folder);
  std::ifstream in(folder + "/adapter_config.json");
  Json config = Json::parse(in);
  config["use_dora"] = true;
  std::ofstream(folder + "/adapter_config.json") << config;
  const auto told = DescribeLora(folder);
  ASSERT_TRUE(told.ok()) << told.status().ToString();
  EXPECT_EQ(told->targets.size(), 3u);
  EXPECT_EQ(told->served.code(), StatusCode::kUnimplemented);
  fs::remove(folder + "/adapter_model.safetensors");
  EXPECT_EQ(DescribeLora(folder).status().message().find("'" + folder + "'"),
            0u);
  fs::remove_all(folder);
}

// The bits of a completion are the same alone and beside sequences with another
// adapter, kept in other numbers too, and with none, in chunks of any size, on
// any number of threads; also where layers are mixtures of experts, slide or
// attend in chunks.
struct BitsCase {
  const char* base;
  const char* dtype = "auto";  // f16; the second adapter is
};
class LoraBits : public testing::TestWithParam<BitsCase> {};

TEST_P(LoraBits, AreTheSameAloneAndAmongOthers) {
  const std::string base = GetParam().base;
  const bool made = base != "hf_llama_yarn";
  const std::string path =
      made ? RandomAdapter(kData + base) : std::string(kData) + "lora_llama";
  std::vector<DriverRequest> requests;
  for (int32_t i = 0; i < 9; ++i) {
    DriverRequest request;
    for (int32_t k = 0; k < 5 + 7 * i; ++k) {
      request.prompt.push_back(3 + (11 * i + 5 * k) % 250);
    }
    request.max_tokens = 12;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.logprobs = true;
    requests.push_back(request);
  }
  std::vector<DriverAnswer> alone;
  std::vector<DriverAnswer> plain;
  for (const int threads : {1, 2}) {
    LlmModel model = LoadTiny(base, threads, "auto", GetParam().dtype);
    const auto first = LoadLora(path, *model.lora_base);
    LoraBase halves = *model.lora_base;
    halves.packing.dtype = LoraDtype::kF16;
    const auto second = LoadLora(path, halves);
    ASSERT_TRUE(first.ok() && second.ok()) << first.status().ToString();
    EXPECT_NE((*first)->number(), (*second)->number());
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].adapter = i % 3 == 0   ? nullptr
                            : i % 3 == 1 ? *first
                                         : *second;
    }
    if (alone.empty()) {
      for (DriverRequest request : requests) {
        alone.push_back(Drive(*model.runner, {request}, {})[0]);
        request.adapter = nullptr;
        plain.push_back(Drive(*model.runner, {request}, {})[0]);
      }
    }
    for (const DriverOptions& options :
         {DriverOptions{}, DriverOptions{.chunk = 3},
          DriverOptions{.chunk = 16, .preempt_every = 5}}) {
      const auto together = Drive(*model.runner, requests, options);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(together[i], alone[i]) << "request " << i;
        EXPECT_EQ(together[i] == plain[i], i % 3 == 0) << "request " << i;
      }
    }
  }
  if (made) fs::remove_all(path);
}

INSTANTIATE_TEST_SUITE_P(
    Bases, LoraBits,
    testing::Values(BitsCase{"hf_llama_yarn"}, BitsCase{"hf_mistral"},
                    BitsCase{"hf_gemma3"}, BitsCase{"hf_mixtral"},
                    BitsCase{"hf_qwen3moe"}, BitsCase{"hf_gpt_oss"},
                    BitsCase{"hf_llama4"}, BitsCase{"hf_llama_yarn", "int8"},
                    BitsCase{"hf_gemma3", "int8"},
                    BitsCase{"hf_qwen3moe", "int8"},
                    BitsCase{"hf_llama4", "int8"},
                    BitsCase{"hf_llama_yarn", "bf16"}),
    [](const auto& test) {
      return std::string(test.param.base) + "_" + test.param.dtype;
    });

// Rows of a packed matrix times what undoes its scale.
std::vector<float> Unpacked(const LoraMatrix& packed, float scale) {
  const PackedMatrix& matrix = packed.matrix;
  std::vector<float> values(static_cast<size_t>(matrix.n * matrix.k));
  for (int64_t row = 0; row < matrix.n; ++row) {
    packed.kernels->unpack_row(matrix, row, values.data() + row * matrix.k);
  }
  for (float& x : values) x *= scale;
  return values;
}

TEST(LoraPacking, KeepsElevenBitsOfF32AndAllOfBf16) {
  LoraFloatLayers layers(2);
  LoraFloats& q = layers[1][static_cast<size_t>(LoraTarget::kQ)];
  q.rank = 5;
  uint32_t state = 3;
  const auto random = [&](float most) {
    state = state * 1664525u + 1013904223u;
    return (static_cast<float>(state >> 8) / (1 << 23) - 1) * most;
  };
  for (int i = 0; i < 5 * 37; ++i) q.a.push_back(random(1e-6f));
  for (int i = 0; i < 51 * 5; ++i) {
    const uint32_t top = std::bit_cast<uint32_t>(random(3e5f)) & 0xffff0000;
    q.b.push_back(std::bit_cast<float>(top));  // a bf16
  }
  for (const IsaChoice& isa : ListKernels()) {
    if (!isa.missing.empty()) continue;
    SCOPED_TRACE(isa.name);
    const auto adapter = PackLora(layers, {.kernels = isa.kernels});
    ASSERT_TRUE(adapter.ok()) << adapter.status().ToString();
    EXPECT_EQ((*adapter)->delta(0, LoraTarget::kQ).rank, 0);
    EXPECT_EQ((*adapter)->delta(1, LoraTarget::kK).rank, 0);
    const LoraDelta& delta = (*adapter)->delta(1, LoraTarget::kQ);
    ASSERT_EQ(delta.rank, 5);
    // A's and B's scales are one number; a matrix shows its own at any value.
    const std::vector<float> a = Unpacked(delta.a, 1);
    const std::vector<float> b = Unpacked(delta.b, 1);
    const auto by = [](const std::vector<float>& packed,
                       const std::vector<float>& values) {
      return std::exp2(std::round(std::log2(packed[0] / values[0])));
    };
    const float of_a = by(a, q.a);
    const float of_b = by(b, q.b);
    EXPECT_EQ(delta.scale, 1 / (of_a * of_b));
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i] / of_a, q.a[i],
                  std::abs(q.a[i]) / 2048 + 1e-6f / (1 << 24));
    }
    for (size_t i = 0; i < b.size(); ++i) EXPECT_EQ(b[i] / of_b, q.b[i]);
    const auto exact =
        PackLora(layers, {.kernels = isa.kernels, .dtype = LoraDtype::kF32});
    ASSERT_TRUE(exact.ok());
    const LoraDelta& kept = (*exact)->delta(1, LoraTarget::kQ);
    EXPECT_EQ(kept.scale, 1);
    EXPECT_EQ(Unpacked(kept.a, 1), q.a);
    EXPECT_EQ(Unpacked(kept.b, 1), q.b);
    EXPECT_LT((*adapter)->num_bytes(), (*exact)->num_bytes());
  }
}

TEST(LiveLora, AScaleIsAnAdapterOfItsOwnOverTheSameWeights) {
  LoraFloatLayers layers(1);
  LoraFloats& q = layers[0][static_cast<size_t>(LoraTarget::kQ)];
  q.rank = 1;
  q.a = {1, 2, 3, 4};
  q.b = {5, 6};
  const auto adapter =
      PackLora(layers, {.kernels = ListKernels().back().kernels}, "sql");
  ASSERT_TRUE(adapter.ok()) << adapter.status().ToString();
  LiveLora live(*adapter);
  EXPECT_EQ(live.Get(), *adapter);
  ASSERT_TRUE(live.SetScale(0.5f).ok());
  const auto half = live.Get();
  EXPECT_EQ(live.scale(), 0.5f);
  EXPECT_NE(half->number(), (*adapter)->number());
  EXPECT_EQ(half->name(), "sql");
  EXPECT_EQ(half->num_bytes(), (*adapter)->num_bytes());
  const LoraDelta& whole = (*adapter)->delta(0, LoraTarget::kQ);
  const LoraDelta& scaled = half->delta(0, LoraTarget::kQ);
  EXPECT_EQ(scaled.scale, whole.scale / 2);
  EXPECT_EQ(scaled.a.matrix.data, whole.a.matrix.data);
  ASSERT_TRUE(live.SetScale(0.5f).ok());
  EXPECT_EQ(live.Get(), half) << "what is computed with it is found again";
  ASSERT_TRUE(live.SetScale(0).ok());
  EXPECT_EQ(live.Get(), nullptr);
  ASSERT_TRUE(live.SetScale(1).ok());
  EXPECT_EQ(live.Get(), *adapter);
}

TEST(LoraDtype, IsNamedAsInTheSettings) {
  for (const char* name : {"f16", "bf16", "f32", "int8"}) {
    EXPECT_STREQ(NameOf(*LoraDtypeOf(name, LoraDtype::kF16)), name);
  }
  EXPECT_EQ(*LoraDtypeOf("auto", LoraDtype::kF32), LoraDtype::kF32);
  EXPECT_EQ(*LoraDtypeOf("bfloat16", LoraDtype::kF32), LoraDtype::kBF16);
  EXPECT_EQ(LoadTiny("hf_qwen2").lora_base->packing.dtype, LoraDtype::kF32);
  EXPECT_EQ(LoadTiny("hf_qwen2", 1, "auto").lora_base->packing.dtype,
            LoraDtype::kF16);
  for (const char* device : {"cpu", "cuda"}) {
    LlmOptions options = TinyOptions(1);
    options.device = device;
    options.settings.lora_dtype = device == std::string("cpu") ? "q4" : "int8";
    const Status refused =
        LoadLlm(kData + std::string("hf_qwen2"), options).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(refused.field(), "lora_dtype") << refused.ToString();
  }
}

TEST(LoraConfig, WhatIsNotServedIsRefused) {
  constexpr const char* kGood =
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none"})";
  const auto good = ParsePeftConfig(kGood);
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  EXPECT_EQ(good->Of(4), 2.0f);
  const auto with = [&](const char* fields) {
    Json config = Json::parse(kGood);
    config.update(Json::parse(fields));
    return ParsePeftConfig(config.dump());
  };
  EXPECT_EQ(with(R"({"use_rslora": true})")->Of(4), 4.0f);
  EXPECT_TRUE(with(R"({"modules_to_save": null, "rank_pattern": {}})").ok());
  for (const auto& [fields, words] :
       std::vector<std::pair<const char*, const char*>>{
           {R"({"peft_type": "IA3"})", "peft_type is \"IA3\""},
           {R"({"use_dora": true})", "DoRA is not served"},
           {R"({"init_lora_weights": "pissa_niter_4"})", "base's weights"},
           {R"({"init_lora_weights": "olora"})", "base's weights"},
           {R"({"bias": "all"})", "bias is \"all\""},
           {R"({"modules_to_save": ["lm_head"]})", "modules_to_save"},
           {R"({"rank_pattern": {"q": 2}})", "one rank for all"},
           {R"({"r": 0})", "r is 0"},
           {R"({"r": 257})", "r is 257"},
           {R"({"r": "4"})", "r is \"4\""},
           {R"({"lora_alpha": null})", "lora_alpha"},
           {R"({"lora_alpha": 1e300})", "lora_alpha"}}) {
    const auto refused = with(fields);
    ASSERT_FALSE(refused.ok()) << fields;
    EXPECT_NE(refused.status().message().find(words), std::string_view::npos)
        << refused.status().ToString();
  }
  EXPECT_FALSE(ParsePeftConfig("[]").ok());
  EXPECT_FALSE(ParsePeftConfig("").ok());
}

TEST(LoraFiles, WhatDoesNotFitSaysSo) {
  const std::string adapter = std::string(kData) + "lora_llama";
  const LlmModel llama = LoadTiny("hf_llama_yarn");
  const LlmModel qwen2 = LoadTiny("hf_qwen2");
  const auto expect = [](const std::string& path, const LoraBase& base,
                         const std::string& words) {
    const auto loaded = LoadLora(path, base);
    ASSERT_FALSE(loaded.ok()) << path;
    EXPECT_NE(loaded.status().message().find(words), std::string_view::npos)
        << loaded.status().ToString();
    EXPECT_NE(loaded.status().message().find(path), std::string_view::npos);
  };
  expect("tests/data/none", *llama.lora_base, "no such file or folder");
  expect("tests/data/hf_llama", *llama.lora_base, "no adapter_config.json");
  expect(adapter + "/adapter.gguf", *llama.lora_base,
         "for base models in GGUF");
  expect("tests/data/hf_llama_yarn/model.gguf", *llama.lora_base,
         "not an adapter");
  LoraBase other = *llama.lora_base;
  other.config.layers = 1;
  other.config.specs.resize(1);
  expect(adapter, other, "1 layers");
  other = *llama.lora_base;
  other.config.hidden = 32;
  expect(adapter, other, "was made for another model");
  other = *llama.lora_base;
  other.config.specs[0].experts = true;
  expect(adapter, other, "the adapter changes 'blk.0.ffn_");
  other = *llama.lora_base;
  other.config.architecture = "gpt2";
  expect(adapter, other, "a model of the family 'gpt2' does not have");

  // A copy whose configuration says another rank.
  const std::string copy = TempPath("lora_copy");
  fs::create_directories(copy);
  fs::copy_file(adapter + "/adapter_model.safetensors",
                copy + "/adapter_model.safetensors",
                fs::copy_options::overwrite_existing);
  std::ofstream(copy + "/adapter_config.json")
      << R"({"peft_type": "LORA", "r": 8, "lora_alpha": 8})";
  expect(copy, *llama.lora_base, "has rank 4 but adapter_config.json says");
  // One whose scale takes B, whose last value is 8, beyond f32.
  std::ofstream(copy + "/adapter_config.json")
      << R"({"peft_type": "LORA", "r": 4, "lora_alpha": 3e38})";
  {
    std::fstream file(copy + "/adapter_model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    const float value = 8;
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  expect(copy, *llama.lora_base, "is beyond f32");
  // And one that is cut short.
  fs::resize_file(copy + "/adapter_model.safetensors", 300);
  EXPECT_FALSE(LoadLora(copy, *llama.lora_base).ok());
  fs::remove_all(copy);
}

}  // namespace
}  // namespace millrace::models
