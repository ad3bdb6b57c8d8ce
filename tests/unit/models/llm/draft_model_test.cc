#include "models/llm/draft_model.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"

namespace millrace::models {
namespace {

Vocabulary Words(std::vector<std::string> tokens) {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.kinds.assign(tokens.size(), TokenKind::kNormal);
  vocabulary.tokens = std::move(tokens);
  return vocabulary;
}

bool Says(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string_view::npos;
}

TEST(DraftModel, TheSameTokensAreTheSameVocabulary) {
  const Vocabulary target = Words({"a", "b", "c"});
  EXPECT_TRUE(CheckSameVocabulary(target, Words({"a", "b", "c"})).ok());

  const Status other = CheckSameVocabulary(target, Words({"a", "x", "c"}));
  EXPECT_TRUE(Says(other, "token 1 is 'x' instead of 'b'; take a draft model"))
      << other.ToString();
  const Status fewer = CheckSameVocabulary(target, Words({"a", "b"}));
  EXPECT_TRUE(Says(fewer,
                   "vocabulary of 2 tokens is not that of the model, "
                   "which has 3; take"))
      << fewer.ToString();
  Vocabulary kind = Words({"a", "b", "c"});
  kind.model = "llama";
  EXPECT_TRUE(Says(CheckSameVocabulary(target, kind),
                   "of kind 'llama', that of the model 'gpt2'"));
}

TEST(DraftModel, IdsThatFillMatricesUpDoNotCount) {
  Vocabulary filled = Words({"a", "b", "[PAD2]", "[PAD3]"});
  filled.kinds[2] = filled.kinds[3] = TokenKind::kUnused;
  EXPECT_TRUE(CheckSameVocabulary(Words({"a", "b"}), filled).ok());
  EXPECT_TRUE(CheckSameVocabulary(filled, Words({"a", "b"})).ok());
  filled.kinds[3] = TokenKind::kNormal;
  EXPECT_FALSE(CheckSameVocabulary(Words({"a", "b"}), filled).ok());
}

class LoadDraft : public testing::Test {
 protected:
  LoadDraft() {
    TinyModel small;
    small.layers = 1;
    small.seed = 9;
    EXPECT_TRUE(WriteTinyGguf(TinyModel{}, path_));
    EXPECT_TRUE(WriteTinyGguf(small, draft_));
    options_.settings.speculative_model = draft_;
    options_.settings.huge_pages = false;
    options_.settings.max_num_seqs = 4;
    options_.memory_limit_bytes = int64_t{256} << 20;
    options_.cpus = {0, 1};
  }
  ~LoadDraft() override {
    std::remove(path_.c_str());
    std::remove(draft_.c_str());
  }

  const std::string path_ = TempPath("draft_target.gguf");
  const std::string draft_ = TempPath("draft_draft.gguf");
  LlmOptions options_;
};

TEST_F(LoadDraft, BothModelsHaveAsManyPagesOutOfOneBudget) {
  // 3 layers of 8 KiB a page together: ten pages each, and a little over.
  options_.settings.kv_cache_memory_bytes = 10 * 3 * 8192 + 5000;
  const StatusOr<LlmModel> model = LoadLlm(path_, options_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ASSERT_NE(model->draft_runner, nullptr);
  EXPECT_EQ(model->info.kv_bytes_per_token * kPageTokens, 2 * 8192);
  EXPECT_EQ(model->runner->info().num_pages, 10);
  EXPECT_EQ(model->draft_runner->info().num_pages, 10);
  EXPECT_EQ(model->draft_info.kv_bytes_per_token * kPageTokens, 8192);
  EXPECT_LT(model->draft_info.weight_bytes, model->info.weight_bytes);
}

TEST_F(LoadDraft, NoneIsLoadedWhereNothingIsDrafted) {
  options_.settings.speculative_method = "none";
  const StatusOr<LlmModel> model = LoadLlm(path_, options_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->draft_runner, nullptr);
}

TEST_F(LoadDraft, AFileThatCannotDraftForTheModelIsNamed) {
  options_.settings.speculative_model = "/nonexistent/draft.gguf";
  const Status missing = LoadLlm(path_, options_).status();
  EXPECT_EQ(missing.field(), "speculative_model");
  EXPECT_TRUE(Says(missing, "/nonexistent/draft.gguf")) << missing.ToString();
}

TEST_F(LoadDraft, TheMemoryLimitIsForBothTogether) {
  options_.settings.kv_cache_memory_bytes = 10 * 3 * 8192;
  const StatusOr<LlmModel> model = LoadLlm(path_, options_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const int64_t wanted =
      model->info.weight_bytes + model->draft_info.weight_bytes + 10 * 3 * 8192;
  options_.memory_limit_bytes = wanted;
  EXPECT_TRUE(LoadLlm(path_, options_).ok());
  options_.memory_limit_bytes = wanted - 1;
  const Status status = LoadLlm(path_, options_).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Says(status, "what the model leaves of the memory limit"))
      << status.ToString();
}

TEST_F(LoadDraft, AQuantisedOneIsTakenBesideAModelRoundedWhileItLoads) {
  TinyModel floats;
  floats.type = floats.embedding_type = GgmlType::kF32;
  ASSERT_TRUE(WriteTinyGguf(floats, path_));
  options_.settings.quantize = "q8_0";
  const StatusOr<LlmModel> model = LoadLlm(path_, options_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->draft_info.quantization, "Q4_1");
}

}  // namespace
}  // namespace millrace::models
