// A converted model answers as the original does, bit by bit, and a damaged or
// foreign one is refused with a sentence.
#include "models/llm/packed.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "models/cpu/isa.h"
#include "models/llm/gguf_source.h"
#include "models/llm/llm_plan.h"
#include "models/llm/model.h"
#include "models/llm/teacher_forcing.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

std::vector<float> LogitsOf(const std::string& path,
                            const LlmOptions& options) {
  StatusOr<LlmModel> model = LoadLlm(path, options);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  if (!model.ok()) return {};
  std::vector<float> out;
  const std::vector<int32_t> tokens = {5, 270, 33, 8, 8, 100, 61, 9, 201};
  const Status status = ScoreTokens(
      *model, tokens, 4, [&](int32_t, std::span<const float> logits) {
        out.insert(out.end(), logits.begin(), logits.end());
      });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return out;
}

class Packed : public testing::TestWithParam<GgmlType> {
 protected:
  void SetUp() override {
    const std::string name(InfoOf(GetParam()).name);
    original_ = TempPath("original_" + name + ".gguf");
    packed_ = TempPath("packed_" + name + ".gguf");
    TinyModel model;
    model.type = GetParam();
    ASSERT_TRUE(WriteTinyGguf(model, original_));
  }
  void TearDown() override {
    std::remove(original_.c_str());
    std::remove(packed_.c_str());
  }

  std::string original_;
  std::string packed_;
};

TEST_P(Packed, GivesTheBitsOfTheOriginal) {
  for (const IsaChoice& isa : ListKernels()) {
    if (!isa.missing.empty()) continue;
    for (const char* compute : {"auto", "int16", "f32"}) {
      LlmOptions options = TinyOptions(2);
      options.isa = isa.name;
      options.settings.compute_dtype = compute;
      const Status status = ConvertLlm(original_, packed_, options);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(LogitsOf(original_, options), LogitsOf(packed_, options))
          << isa.name << " " << compute;
    }
  }
}

TEST_P(Packed, TellsTheSameOfTheModel) {
  const LlmOptions options = TinyOptions(1);
  ASSERT_TRUE(ConvertLlm(original_, packed_, options).ok());
  const StatusOr<LlmModel> a = LoadLlm(original_, options);
  const StatusOr<LlmModel> b = LoadLlm(packed_, options);
  ASSERT_TRUE(a.ok() && b.ok()) << b.status().ToString();
  EXPECT_EQ(a->info.architecture, b->info.architecture);
  EXPECT_EQ(a->info.name, b->info.name);
  EXPECT_EQ(a->info.quantization, b->info.quantization);
  EXPECT_EQ(a->info.num_parameters, b->info.num_parameters);
  EXPECT_EQ(a->info.weight_bytes, b->info.weight_bytes);
  EXPECT_EQ(a->info.trained_context, b->info.trained_context);
  EXPECT_EQ(a->eos_text, b->eos_text);
  EXPECT_EQ(a->bos_text, b->bos_text);
  EXPECT_EQ(a->chat_template == nullptr, b->chat_template == nullptr);
  const std::string text = "Once upon a time, 42 mills raced.";
  EXPECT_EQ(a->tokenizer->Encode(text, {.add_special = true}),
            b->tokenizer->Encode(text, {.add_special = true}));
}

INSTANTIATE_TEST_SUITE_P(Types, Packed,
                         testing::Values(GgmlType::kQ4_1, GgmlType::kQ8_0,
                                         GgmlType::kBF16),
                         [](const auto& type) {
                           return std::string(InfoOf(type.param).name);
                         });

TEST(PackedFamilies, KeepSentencePieces) {
  const std::string packed = TempPath("packed_pieces.gguf");
  LlmOptions options = TinyOptions(1);
  options.settings.max_model_len = 128;
  const std::string folder = "tests/data/hf_mistral";
  ASSERT_TRUE(ConvertLlm(folder, packed, options).ok());
  const StatusOr<LlmModel> a = LoadLlm(folder, options);
  const StatusOr<LlmModel> b = LoadLlm(packed, options);
  ASSERT_TRUE(a.ok() && b.ok()) << b.status().ToString();
  const std::string text = "the mill <|end|>  \u00fcber <|left|> \u6c34\u706b";
  const auto ids = a->tokenizer->Encode(text, {.parse_special = true});
  EXPECT_EQ(ids, b->tokenizer->Encode(text, {.parse_special = true}));
  EXPECT_EQ(a->tokenizer->Decode(ids, true), b->tokenizer->Decode(ids, true));
  EXPECT_EQ(std::remove(packed.c_str()), 0);
}

// Files hold q, k and v as one matrix, or matrices transposed.
TEST(PackedFamilies, GiveTheBitsOfTheOriginal) {
  const std::string packed = TempPath("packed_family.gguf");
  for (const char* folder :
       {"tests/data/hf_phi3", "tests/data/hf_gpt2", "tests/data/hf_mixtral",
        "tests/data/hf_qwen2moe/model.gguf", "tests/data/hf_qwen2moe",
        "tests/data/hf_gpt_oss", "tests/data/hf_gpt_oss/model.gguf",
        "tests/data/hf_gpt_oss_mxfp4", "tests/data/hf_gpt_oss_mxfp4/model.gguf",
        "tests/data/hf_llama4", "tests/data/hf_llama4/model.gguf",
        "tests/data/hf_gemma3", "tests/data/hf_starcoder2"}) {
    LlmOptions options = TinyOptions(2);
    options.settings.max_model_len = 128;
    const Status status = ConvertLlm(folder, packed, options);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(LogitsOf(folder, options), LogitsOf(packed, options)) << folder;
  }
  EXPECT_EQ(std::remove(packed.c_str()), 0);
}

// As files were written that left the biases of experts out.
TEST(PackedFamilies, BiasesOfExpertsWithoutDataAreRefused) {
  const std::string packed = TempPath("packed_biases.gguf");
  ASSERT_TRUE(ConvertLlm("tests/data/hf_gpt_oss", packed, TinyOptions(1)).ok());
  std::ifstream in(packed, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  const std::string name = "blk.0.ffn_up_exps.bias";
  const size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'x';
  StatusOr<GgufFile> file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  StatusOr<std::optional<PackedForm>> form = ReadPackedForm(*file);
  ASSERT_TRUE(form.ok() && *form) << form.status().ToString();
  FileTensor bias = *file->FindTensor("x" + name.substr(1));
  EXPECT_EQ(bias.num_dims, 2);
  bias.name = name;
  bias.data = {};
  (*form)->matrices.push_back(bias);
  const GgufSource source(*std::move(file), *std::move(form));
  const Status status = PlanLlm(source).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'" + name + "' have no data"),
            std::string_view::npos)
      << status.ToString();
  EXPECT_EQ(std::remove(packed.c_str()), 0);
}

class PackedErrors : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteTinyGguf(TinyModel{}, original_));
    ASSERT_TRUE(ConvertLlm(original_, packed_, TinyOptions(1)).ok());
  }
  void TearDown() override {
    std::remove(original_.c_str());
    std::remove(packed_.c_str());
  }
  std::string Message(const LlmOptions& options) {
    return std::string(LoadLlm(packed_, options).status().message());
  }

  const std::string original_ = TempPath("packed_errors_original.gguf");
  const std::string packed_ = TempPath("packed_errors.gguf");
};

TEST_F(PackedErrors, OtherSettingsWantAnotherLayout) {
  LlmOptions options = TinyOptions(1);
  options.settings.compute_dtype = "f32";
  EXPECT_NE(Message(options).find("the weights are packed as"),
            std::string::npos)
      << Message(options);
}

TEST_F(PackedErrors, IsNotConvertedAgain) {
  const Status status = ConvertLlm(packed_, packed_ + ".again", TinyOptions(1));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
}

TEST_F(PackedErrors, EveryCutIsNoticed) {
  std::ifstream in(packed_, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  in.close();
  // Less would take only padding behind the last tensor.
  for (size_t cut = 4096; cut < bytes.size(); cut = cut * 3 / 2) {
    std::ofstream(packed_, std::ios::binary | std::ios::trunc)
        << bytes.substr(0, bytes.size() - cut);
    EXPECT_FALSE(LoadLlm(packed_, TinyOptions(1)).ok()) << cut;
  }
}

TEST_F(PackedErrors, AShapeThatLiesIsRefused) {
  // The layout is worked out from the shapes, so one that was changed cannot
  // match it; a type that does not exist is named.
  std::ifstream in(packed_, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  in.close();
  const std::string key = "millrace.packed.types";
  const size_t at = bytes.find(key) + key.size() + 4 + 4 + 8;
  bytes[at] = 77;
  std::ofstream(packed_, std::ios::binary | std::ios::trunc) << bytes;
  EXPECT_NE(Message(TinyOptions(1)).find("unknown type 77"), std::string::npos)
      << Message(TinyOptions(1));
}

TEST(PackedFolder, KeepsWhatItsFilesSay) {
  const std::string packed = TempPath("packed_folder.gguf");
  for (const char* folder : {"tests/data/hf_llama", "tests/data/hf_qwen2"}) {
    SCOPED_TRACE(folder);
    const LlmOptions options = TinyOptions(2);
    const Status status = ConvertLlm(folder, packed, options);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(LogitsOf(packed, options), LogitsOf(folder, options));
    const auto from = LoadLlm(folder, options);
    const auto to = LoadLlm(packed, options);
    ASSERT_TRUE(from.ok() && to.ok());
    for (const char* text : {"it'S 12345  e\u0301\n", "<|start|>a<think>"}) {
      const EncodeOptions whole{.add_special = true, .parse_special = true};
      EXPECT_EQ(to->tokenizer->Encode(text, whole),
                from->tokenizer->Encode(text, whole));
    }
    EXPECT_EQ(to->tokenizer->vocabulary().eog_ids,
              from->tokenizer->vocabulary().eog_ids);
    EXPECT_EQ(to->generation.temperature, from->generation.temperature);
    EXPECT_EQ(to->generation.top_k, from->generation.top_k);
    EXPECT_EQ(to->generation.top_p, from->generation.top_p);
    EXPECT_EQ(to->generation.repetition_penalty,
              from->generation.repetition_penalty);
  }
  EXPECT_EQ(std::remove(packed.c_str()), 0);
}

// As `tokenizers` trains them: sums of "a" and "b" and the score of "ab" differ
// by less than a float tells, the one way and the other.
TEST(PackedFolder, ScoresOfUnigramStayDoubles) {
  using Json = nlohmann::ordered_json;
  namespace fs = std::filesystem;
  const std::string folder = TempPath("packed_unigram");
  const std::string packed = TempPath("packed_unigram.gguf");
  fs::remove_all(folder);
  fs::copy("tests/data/hf_llama", folder);
  std::ifstream in(folder + "/tokenizer.json");
  Json json = Json::parse(in);
  in.close();
  Json vocab = Json::parse(R"([["<unk>", 0], ["\u2581", -3], ["a", -1],
      ["b", -1.000000001], ["ab", -2.0000000005], ["ba", -2.000000002]])");
  constexpr size_t kOrdinary = 300;  // ids behind them are added tokens
  while (vocab.size() < kOrdinary) {
    vocab.push_back(
        Json::array({"<" + std::to_string(vocab.size()) + ">", -50.0}));
  }
  json["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", "never"},
                           {"split", true}};
  json["decoder"] = json["pre_tokenizer"];
  json["post_processor"] = nullptr;
  std::ofstream(folder + "/tokenizer.json") << json;
  const LlmOptions options = TinyOptions(1);
  const Status status = ConvertLlm(folder, packed, options);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto from = LoadLlm(folder, options);
  const auto to = LoadLlm(packed, options);
  ASSERT_TRUE(from.ok()) << from.status().ToString();
  ASSERT_TRUE(to.ok()) << to.status().ToString();
  EXPECT_EQ(to->tokenizer->vocabulary().scores,
            from->tokenizer->vocabulary().scores);
  for (const auto* tokenizer : {from->tokenizer.get(), to->tokenizer.get()}) {
    EXPECT_EQ(tokenizer->Encode("ab", {}), (std::vector<int32_t>{4}));
    EXPECT_EQ(tokenizer->Encode("ba", {}), (std::vector<int32_t>{3, 2}));
  }
  fs::remove_all(folder);
  EXPECT_EQ(std::remove(packed.c_str()), 0);
}

constexpr char kEmbedder[] = "tests/data/encoders/qwen3_embed";

// Copies of folders that make vectors, changed.
class PackedVectors : public testing::Test {
 protected:
  using Json = nlohmann::ordered_json;

  void SetUp() override { Copy(kEmbedder); }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    std::remove(packed_.c_str());
  }
  void Copy(const std::string& from) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(from, folder_,
                          std::filesystem::copy_options::recursive);
  }
  Json Read(const std::string& file) const {
    std::ifstream in(folder_ + "/" + file);
    return Json::parse(in);
  }
  void Write(const std::string& file, const Json& json) const {
    std::ofstream(folder_ + "/" + file) << json;
  }
  // "<before> a <behind>"
  void SetTemplate(const std::vector<std::string>& before,
                   const std::vector<std::string>& behind) const {
    Json tokenizer = Read("tokenizer.json");
    Json& form = tokenizer["post_processor"];
    form = {{"type", "TemplateProcessing"},
            {"single", Json::array()},
            {"pair", Json::parse(R"([{"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}}])")},
            {"special_tokens", Json::object()}};
    const auto add = [&](const std::string& token) {
      form["single"].push_back(
          {{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      for (const Json& added : tokenizer["added_tokens"]) {
        if (added["content"] != token) continue;
        form["special_tokens"][token] = {{"id", token},
                                         {"ids", Json::array({added["id"]})},
                                         {"tokens", Json::array({token})}};
      }
    };
    for (const std::string& token : before) add(token);
    form["single"].push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    for (const std::string& token : behind) add(token);
    Write("tokenizer.json", tokenizer);
  }
  void ChoosePooling(const std::string& mode) const {
    Json pooling = Read("1_Pooling/config.json");
    pooling["pooling_mode_lasttoken"] = false;
    pooling[mode] = true;
    Write("1_Pooling/config.json", pooling);
  }
  StatusOr<LlmModel> Converted(const std::string& from) const {
    LlmOptions options = TinyOptions(1);
    options.settings.max_model_len = 128;
    RETURN_IF_ERROR(ConvertLlm(from, packed_, options));
    EXPECT_TRUE(MakesVectors(packed_));
    options.hidden_rows = true;
    return LoadLlm(packed_, options);
  }
  void ExpectRefused(const std::string& words) const {
    std::remove(packed_.c_str());
    const Status status = ConvertLlm(folder_, packed_, TinyOptions(1));
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.ToString();
    EXPECT_NE(status.message().find(words), std::string_view::npos)
        << status.ToString();
    EXPECT_FALSE(std::filesystem::exists(packed_));
  }

  const std::string folder_ = TempPath("packed_vectors");
  const std::string packed_ = TempPath("packed_vectors.gguf");
};

TEST_F(PackedVectors, KeepTheEndBehindATextAndThePooling) {
  for (const std::string file : {"", "/model.gguf"}) {
    SCOPED_TRACE(file);
    const StatusOr<LlmModel> model = Converted(kEmbedder + file);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ(model->pooling, "last");
    EXPECT_TRUE(model->adds_eos);
    EXPECT_EQ(model->tokenizer->vocabulary().eos_id, 301);
    EXPECT_FALSE(model->tokenizer->vocabulary().add_bos);
  }
}

TEST_F(PackedVectors, KeepWhatTheFilesOfAFolderSay) {
  ChoosePooling("pooling_mode_mean_tokens");
  SetTemplate({"<|bos|>"}, {"<|start|>"});
  StatusOr<LlmModel> model = Converted(folder_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->pooling, "mean");
  const Vocabulary& words = model->tokenizer->vocabulary();
  EXPECT_TRUE(words.add_bos && model->adds_eos);
  EXPECT_EQ(words.bos_id, 302);
  EXPECT_EQ(words.eos_id, 300);

  SetTemplate({}, {});
  ChoosePooling("pooling_mode_cls_token");
  ChoosePooling("pooling_mode_lasttoken");
  ExpectRefused("does not choose one");
  std::filesystem::remove_all(folder_ + "/1_Pooling");
  model = Converted(folder_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->pooling, "last");
  EXPECT_FALSE(model->adds_eos);
  EXPECT_FALSE(model->tokenizer->vocabulary().add_bos);
}

// Its class has a head of its own, and sentence-transformers' files.
TEST_F(PackedVectors, HaveNoHead) {
  const std::string modules = Read("modules.json").dump();
  Copy("tests/data/hf_llama");
  std::ofstream(folder_ + "/modules.json") << modules;
  const StatusOr<LlmModel> model = Converted(folder_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->pooling, "last");
  EXPECT_TRUE(model->tokenizer->vocabulary().add_bos);
  EXPECT_EQ(model->bos_text, "<|bos|>");
}

TEST_F(PackedVectors, WhatNoKeySaysIsRefused) {
  ChoosePooling("pooling_mode_max_tokens");
  ExpectRefused("chooses max");
  Copy(kEmbedder);
  SetTemplate({"<|bos|>", "<|start|>"}, {"<|end|>"});
  ExpectRefused("puts 2 tokens before a text and 1 behind it");
  SetTemplate({}, {"<|end|>", "<|end|>"});
  ExpectRefused("puts 0 tokens before a text and 2 behind it");
  Copy(kEmbedder);
  Json modules = Read("modules.json");
  modules.erase(2);
  Write("modules.json", modules);
  ExpectRefused("does not normalise vectors");
}

}  // namespace
}  // namespace millrace::models
