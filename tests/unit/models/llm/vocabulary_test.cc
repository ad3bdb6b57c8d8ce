#include "models/llm/vocabulary.h"

#include <gtest/gtest.h>

#include "tests/data/tiny_gguf.h"

namespace millrace::models {
namespace {

StatusOr<Vocabulary> Read(const std::string& bytes) {
  ASSIGN_OR_RETURN(const GgufFile file,
                   GgufFile::Parse(std::as_bytes(std::span(bytes))));
  return ReadVocabulary(file);
}

TEST(Vocabulary, OfTheTinyModel) {
  const StatusOr<Vocabulary> read = Read(MakeTinyGguf(TinyModel{}));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->model, "gpt2");
  EXPECT_EQ(read->pre, "smollm");
  EXPECT_EQ(read->tokens.size(), 279u);
  EXPECT_EQ(read->kinds[1], TokenKind::kControl);
  EXPECT_EQ(read->kinds[3], TokenKind::kNormal);
  EXPECT_EQ(read->merges.size(), 20u);
  EXPECT_EQ(read->bos_id, 1);
  EXPECT_EQ(read->eos_id, 2);
  // <|endoftext|> ends an answer too, though no key says so.
  EXPECT_EQ(read->eog_ids, (std::vector<int32_t>{0, 2}));
  EXPECT_FALSE(read->add_bos);
}

TEST(Vocabulary, SentencePiecesOfPhi3SwallowWhatFollowsThem) {
  GgufBytes out;
  out.String("general.architecture", "phi3");
  out.String("tokenizer.ggml.model", "llama");
  out.Strings("tokenizer.ggml.tokens",
              std::vector<std::string>{"<unk>", "<s>", "<0x0A>", "<|end|>"});
  out.Int32s("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 6, 3});
  out.Uint32("tokenizer.ggml.bos_token_id", 1);
  const StatusOr<Vocabulary> read = Read(out.Finish());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->rstrip_ids, (std::vector<int32_t>{3}));
  EXPECT_EQ(read->space_prefix, SpacePrefix::kEach);
  EXPECT_TRUE(read->byte_fallback);
  EXPECT_TRUE(read->add_bos);
  EXPECT_EQ(read->unk_id, 0);
}

// "e" and an accent behind it are "é" to the models of these files.
TEST(Vocabulary, TextIsComposedWhereTheFamilyDoes) {
  for (const auto& [pre, composes] :
       {std::pair("qwen2", true), std::pair("olmo", true),
        std::pair("deepseek-r1-qwen", false), std::pair("llama-bpe", false),
        std::pair("gpt-2", false)}) {
    GgufBytes out;
    out.String("tokenizer.ggml.model", "gpt2");
    out.String("tokenizer.ggml.pre", pre);
    out.Strings("tokenizer.ggml.tokens",
                std::vector<std::string>{"a", "\u00c3", "\u00a9"});
    const StatusOr<Vocabulary> read = Read(out.Finish());
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->nfc, composes) << pre;
  }
}

// As llama.cpp decides it; files of its converter may leave the key out.
TEST(Vocabulary, TextsOfLlama3AndTekkenBeginWithBosUnlessAKeySaysNo) {
  for (const auto& [pre, begins] :
       {std::pair("llama-bpe", true), std::pair("llama3", true),
        std::pair("llama-v3", true), std::pair("tekken", true),
        std::pair("llama4", false), std::pair("dbrx", false),
        std::pair("qwen2", false), std::pair("gpt-2", false)}) {
    for (const int key : {-1, 0, 1}) {  // -1: absent
      for (const bool has_bos : {true, false}) {
        GgufBytes out;
        out.String("tokenizer.ggml.model", "gpt2");
        out.String("tokenizer.ggml.pre", pre);
        out.Strings("tokenizer.ggml.tokens",
                    std::vector<std::string>{"a", "<s>"});
        if (has_bos) out.Uint32("tokenizer.ggml.bos_token_id", 1);
        if (key >= 0) out.Bool("tokenizer.ggml.add_bos_token", key == 1);
        const StatusOr<Vocabulary> read = Read(out.Finish());
        ASSERT_TRUE(read.ok()) << read.status().ToString();
        EXPECT_EQ(read->add_bos, key >= 0 ? key == 1 : begins && has_bos)
            << pre << ", key " << key << ", bos " << has_bos;
      }
    }
  }
}

TEST(Vocabulary, TablesOfCharactersAreRefused) {
  GgufBytes out;
  out.String("tokenizer.ggml.model", "t5");
  out.Strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  out.Int32s("tokenizer.ggml.precompiled_charsmap", std::vector<int32_t>{1});
  EXPECT_EQ(Read(out.Finish()).status().message().substr(0, 43),
            "tokenizer.ggml.precompiled_charsmap is set,");
}

TEST(Vocabulary, IdsMustLieInTheVocabulary) {
  GgufBytes out;
  out.String("tokenizer.ggml.model", "gpt2");
  out.Strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  out.Uint32("tokenizer.ggml.eos_token_id", 2);
  EXPECT_EQ(Read(out.Finish()).status().message(),
            "tokenizer.ggml.eos_token_id is 2, but the vocabulary has 2 "
            "tokens");
}

TEST(Vocabulary, KindsMustMatchTokens) {
  GgufBytes out;
  out.String("tokenizer.ggml.model", "gpt2");
  out.Strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  out.Int32s("tokenizer.ggml.token_type", std::vector<int32_t>{1});
  EXPECT_EQ(Read(out.Finish()).status().code(), StatusCode::kInvalidArgument);
  GgufBytes none;
  none.String("tokenizer.ggml.model", "gpt2");
  EXPECT_EQ(Read(none.Finish()).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace millrace::models
