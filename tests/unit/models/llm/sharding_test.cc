#include "models/llm/sharding.h"

#include <gtest/gtest.h>

#include "models/llm/step_message.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"

namespace millrace::models {
namespace {

struct Opened {
  std::unique_ptr<const ModelSource> source;
  LlmPlan plan;
};

Opened Open(const std::string& path) {
  Opened opened;
  auto source = OpenModelSource(path);
  EXPECT_TRUE(source.ok()) << source.status().ToString();
  opened.source = std::move(source).value();
  auto plan = PlanLlm(*opened.source);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  opened.plan = std::move(plan).value();
  return opened;
}

Opened OpenTiny(const TinyModel& tiny) {
  const std::string path = TempPath("sharding.gguf");
  EXPECT_TRUE(WriteTinyGguf(tiny, path));
  return Open(path);
}

std::vector<float> ValuesOf(const FileTensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.num_elements));
  const int64_t k = tensor.dims[0];
  for (int64_t i = 0; i * k < tensor.num_elements; ++i) {
    EXPECT_TRUE(
        DequantizeRow(tensor.type, tensor.row(i), k, out.data() + i * k));
  }
  return out;
}

std::string Refusal(const Opened& opened, int32_t size,
                    std::optional<GgmlType> quantize = {}) {
  const StatusOr<LlmPlan> part = ShardOf(*opened.source, opened.plan,
                                         {.size = size, .quantize = quantize});
  return part.ok() ? "" : std::string(part.status().message());
}

TEST(Sharding, PartsOfAMatrixAreItsRowsOrPartsOfItsRows) {
  TinyModel tiny;
  tiny.ffn = 128;
  tiny.head_dim = 32;  // 4 heads, 2 KV heads: 128 and 64 rows
  tiny.tied = false;
  const Opened opened = OpenTiny(tiny);
  const LayerTensors& whole = opened.plan.tensors.layers[1];
  const std::vector<float> q = ValuesOf(*whole.attn_q);
  const std::vector<float> down = ValuesOf(*whole.ffn_down);
  const std::vector<float> head = ValuesOf(*opened.plan.tensors.output);
  size_t logits = 0;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const auto part =
        ShardOf(*opened.source, opened.plan, {.rank = rank, .size = 2});
    ASSERT_TRUE(part.ok()) << part.status().ToString();
    EXPECT_EQ(part->config.heads, 2);
    EXPECT_EQ(part->config.kv_heads, 1);
    EXPECT_EQ(part->config.ffn, 64);
    const LayerTensors& layer = part->tensors.layers[1];
    const std::vector<float> own_q = ValuesOf(*layer.attn_q);
    ASSERT_EQ(own_q.size(), q.size() / 2);
    EXPECT_TRUE(std::equal(own_q.begin(), own_q.end(),
                           q.begin() + rank * static_cast<long>(own_q.size())));
    // down is [64 outputs][128 inputs]; a rank has 64 of the inputs.
    const std::vector<float> own_down = ValuesOf(*layer.ffn_down);
    ASSERT_EQ(own_down.size(), down.size() / 2);
    for (size_t row = 0; row < 64; ++row) {
      for (size_t i = 0; i < 64; ++i) {
        ASSERT_EQ(own_down[row * 64 + i],
                  down[row * 128 + static_cast<size_t>(rank) * 64 + i]);
      }
    }
    EXPECT_EQ(layer.attn_norm, whole.attn_norm);
    // Rows of the head follow each other, all of them.
    const std::vector<float> own_head = ValuesOf(*part->tensors.output);
    ASSERT_LE(logits + own_head.size(), head.size());
    EXPECT_TRUE(std::equal(own_head.begin(), own_head.end(),
                           head.begin() + static_cast<long>(logits)));
    logits += own_head.size();
  }
  EXPECT_EQ(logits, head.size());
}

TEST(Sharding, BiasesBehindASumAreRankZerosAlone) {
  const Opened opened = Open("tests/data/hf_gpt2");
  for (const int32_t rank : {0, 1}) {
    const auto part =
        ShardOf(*opened.source, opened.plan, {.rank = rank, .size = 2});
    ASSERT_TRUE(part.ok()) << part.status().ToString();
    const LayerTensors& layer = part->tensors.layers[0];
    EXPECT_EQ(layer.attn_output_bias != nullptr, rank == 0);
    EXPECT_EQ(layer.ffn_down_bias != nullptr, rank == 0);
    EXPECT_EQ(layer.ffn_up_bias->num_elements, opened.plan.config.ffn / 2);
  }
}

TEST(Sharding, ASizeThatDoesNotDivideIsRefusedWithThoseThatDo) {
  TinyModel tiny;
  tiny.ffn = 128;
  tiny.head_dim = 32;
  const Opened opened = OpenTiny(tiny);
  EXPECT_EQ(Refusal(opened, 3),
            "tensor_parallel_size is 3, but the model has 4 heads, which these "
            "sizes divide: 2");
  EXPECT_EQ(Refusal(opened, 4),
            "tensor_parallel_size is 4, but the model has 2 KV heads, which "
            "these sizes divide: 2");
  EXPECT_EQ(Refusal(opened, 2), "");
  EXPECT_EQ(WorkingSizes(*opened.source, opened.plan, 64),
            std::vector<int32_t>{2});
}

TEST(Sharding, RowsAreCutBetweenBlocks) {
  TinyModel tiny;
  tiny.ffn = 96;  // three blocks of 32
  tiny.head_dim = 32;
  EXPECT_EQ(Refusal(OpenTiny(tiny), 2),
            "tensor_parallel_size is 2, but 'blk.0.ffn_down.weight' has rows "
            "of 3 Q4_1 blocks of 32 values; no size above 1 divides them, "
            "leave it out");
  tiny.type = GgmlType::kF32;
  const Opened floats = OpenTiny(tiny);
  EXPECT_EQ(Refusal(floats, 2), "");
  EXPECT_NE(Refusal(floats, 2, GgmlType::kQ8_0), "");
}

TEST(Sharding, WhatIsNotCutIsRefusedByName) {
  for (const auto& [folder, words] :
       std::vector<std::pair<std::string, std::string>>{
           {"hf_mixtral", "mixtures of experts"},
           {"hf_olmo2", "norms over all heads together (olmo2)"},
           {"hf_gpt_neox", "read one row (gptneox)"}}) {
    const std::string refusal = Refusal(Open("tests/data/" + folder), 2);
    EXPECT_NE(refusal.find(words), std::string::npos) << refusal;
  }
}

TEST(Sharding, TheTableSaysHowEachTensorIsCut) {
  TinyModel tiny;
  tiny.ffn = 128;
  tiny.head_dim = 32;
  std::string text;
  for (const TensorCut& line : ShardingTable(OpenTiny(tiny).plan, 2)) {
    text += line.tensor + "|" + line.cut + "|" + line.unit + "|" +
            std::to_string(line.of_rank) + "\n";
  }
  for (const char* line :
       {"token_embd.weight|whole||0\n", "blk.*.attn_q.weight|outputs|heads|2\n",
        "blk.*.attn_k.weight|outputs|KV heads|1\n",
        "blk.*.attn_output.weight|inputs|heads|2\n",
        "blk.*.ffn_up.weight|outputs|ffn columns|64\n",
        "blk.*.ffn_down.weight|inputs|ffn columns|64\n",
        "output (token_embd.weight)|outputs|tokens|"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("q_norm"), std::string::npos);
}

TEST(Sharding, LogitsOfAllRanksAreTheVocabularyInGroupsOf16) {
  for (const int64_t vocab : {64, 270, 49152}) {
    for (const int32_t size : {1, 2, 3, 4}) {
      int64_t end = 0;
      for (int32_t rank = 0; rank < size; ++rank) {
        const LogitRange range = LogitsOf(vocab, rank, size);
        EXPECT_EQ(range.begin, end);
        EXPECT_EQ(range.begin % 16, 0);
        EXPECT_GT(range.count(), 0);
        end = range.end;
      }
      EXPECT_EQ(end, vocab);
    }
  }
}

// ---- steps as bytes ----

constexpr StepLimits kLimits = {
    .max_tokens = 8, .max_seqs = 3, .max_pages_per_seq = 4, .max_samples = 5};

StepBatch SomeStep() {
  StepBatch batch(kLimits);
  batch.num_tokens = 5;
  batch.num_seqs = 2;
  batch.num_copies = 1;
  batch.num_samples = 2;
  for (int32_t i = 0; i < 5; ++i) {
    batch.tokens()[i] = 100 + i;
    batch.positions()[i] = 60 + i;
  }
  batch.q_start()[1] = 1;
  batch.q_start()[2] = 5;
  batch.kv_len()[0] = 64;
  batch.kv_len()[1] = 65;
  batch.slot()[0] = 2;
  batch.prompt_rows()[1] = 4;
  batch.pages(0)[0] = PageId{7};
  batch.pages(1)[0] = kNoPage;
  batch.pages(1)[1] = PageId{9};
  batch.copies()[0] = {PageId{3}, PageId{4}};
  batch.sample_rows()[1] = 4;
  batch.sample_seqs()[1] = 1;
  batch.score_ids()[0] = kSample;
  batch.score_ids()[1] = 17;
  return batch;
}

TEST(StepMessage, ComesBackAsItWas) {
  std::vector<int32_t> numbers;
  WriteStep(SomeStep(), numbers);
  StepBatch read(kLimits);
  std::ranges::fill(read.pages(0), PageId{55});  // of the step before
  ASSERT_TRUE(ReadStep(numbers, read).ok());
  EXPECT_EQ(read.num_copies, 1);
  EXPECT_EQ(read.tokens()[4], 104);
  EXPECT_EQ(read.positions()[4], 64);
  EXPECT_EQ(read.pages(0)[0], PageId{7});
  EXPECT_EQ(read.pages(0)[1], kNoPage);
  EXPECT_EQ(read.pages(1)[1], PageId{9});
  EXPECT_EQ(read.copies()[0].dst, PageId{4});
  std::vector<int32_t> again;
  WriteStep(read, again);
  EXPECT_EQ(again, numbers);
}

TEST(StepMessage, WhatDoesNotFitIsRefused) {
  std::vector<int32_t> numbers;
  WriteStep(SomeStep(), numbers);
  StepBatch read(kLimits);
  for (size_t n = 0; n < numbers.size(); ++n) {
    EXPECT_FALSE(ReadStep(std::span(numbers).first(n), read).ok()) << n;
  }
  for (size_t i = 0; i < 4; ++i) {
    for (const int32_t count : {-1, 9}) {
      std::vector<int32_t> wrong = numbers;
      wrong[i] = count;
      EXPECT_FALSE(ReadStep(wrong, read).ok()) << i << " " << count;
    }
  }
  numbers.push_back(0);
  EXPECT_FALSE(ReadStep(numbers, read).ok());
}

}  // namespace
}  // namespace millrace::models
