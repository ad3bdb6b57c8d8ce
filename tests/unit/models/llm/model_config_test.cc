// Contradictions between metadata and tensors, and what is not served.
#include "models/llm/config.h"

#include <gtest/gtest.h>

#include <cstring>

#include "models/llm/gguf_source.h"
#include "models/llm/llm_plan.h"
#include "tests/data/tiny_gguf.h"

namespace millrace::models {
namespace {

std::string ErrorOf(const std::string& bytes) {
  StatusOr<GgufFile> file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  if (!file.ok()) return file.status().ToString();
  const GgufSource source(std::move(file).value());
  const StatusOr<LlmPlan> plan = PlanLlm(source);
  return plan.ok() ? "" : std::string(plan.status().message());
}

// The tiny model's file with a u32 value changed.
std::string Changed(std::string_view key, uint32_t value) {
  std::string bytes = MakeTinyGguf(TinyModel{});
  const size_t at = bytes.find(key);
  EXPECT_NE(at, std::string::npos) << key;
  std::memcpy(bytes.data() + at + key.size() + 4, &value, sizeof value);
  return bytes;
}

TEST(ModelConfig, OfTheTinyModel) {
  const std::string bytes = MakeTinyGguf(TinyModel{});
  StatusOr<GgufFile> file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok());
  const GgufSource source(std::move(file).value());
  const StatusOr<LlmPlan> plan = PlanLlm(source);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->config.layers, 2);
  EXPECT_EQ(plan->config.vocab, 279);
  EXPECT_TRUE(plan->config.tied_output);
  EXPECT_TRUE(plan->config.rope_interleaved);
  EXPECT_EQ(plan->tensors.output, plan->tensors.token_embd);
  // 2 (K and V) × 2 layers × 2 kv heads × 16 values × 2 bytes.
  EXPECT_EQ(KvBytesPerToken(plan->config, "f16"), 256);
  // × (16 bytes and a scale of 4).
  EXPECT_EQ(KvBytesPerToken(plan->config, "int8"), 160);
  EXPECT_EQ(MainWeightType(source), "Q4_1");
}

TEST(ModelConfig, ContradictionsAreNamed) {
  EXPECT_EQ(ErrorOf(Changed("llama.embedding_length", 96)),
            "tensor 'token_embd.weight' is 64 x 279, but the metadata say 96 x "
            "279");
  EXPECT_EQ(ErrorOf(Changed("llama.block_count", 3)),
            "the file has no tensor 'blk.2.attn_norm.weight'; it is incomplete "
            "or of another family than it says ('llama')");
  EXPECT_EQ(ErrorOf(Changed("llama.block_count", 0)),
            "llama.block_count is 0, 1 to 1024 is allowed");
  EXPECT_EQ(ErrorOf(Changed("llama.attention.head_count_kv", 3)),
            "llama.attention.head_count is 4, which is no multiple of the 3 kv "
            "heads");
  EXPECT_EQ(
      ErrorOf(Changed("llama.rope.dimension_count", 18)),
      "llama.rope.dimension_count is 18; expected an even number up to the 16 "
      "values of a head");
  EXPECT_NE(ErrorOf(Changed("llama.rope.dimension_count", 7)), "");
  EXPECT_NE(ErrorOf(Changed("llama.attention.key_length", 24)), "");
  EXPECT_NE(ErrorOf(Changed("llama.attention.layer_norm_rms_epsilon", 0)), "");
}

TEST(ModelConfig, WhatIsNotServedSaysSo) {
  // A type that is known by name but has no kernels: I8's number is 24, its
  // values are smaller than Q8_0's, so the data still fit.
  std::string bytes = MakeTinyGguf({.type = GgmlType::kQ8_0});
  const std::string name = "blk.0.attn_q.weight";
  const uint32_t i8 = 24;
  std::memcpy(bytes.data() + bytes.find(name) + name.size() + 4 + 16, &i8,
              sizeof i8);
  EXPECT_EQ(ErrorOf(bytes),
            "tensor 'blk.0.attn_q.weight' has weights of type I8; these are "
            "served: " +
                ServedTypeNames());
  EXPECT_EQ(ServedTypeNames(),
            "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, "
            "Q6_K, IQ4_NL, IQ4_XS, BF16, MXFP4");
}

}  // namespace
}  // namespace millrace::models
