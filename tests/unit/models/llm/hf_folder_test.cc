// Tiny folders made by transformers: their logits, token ids and end tokens
// against transformers' own; and what is said of folders that are wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/llm/hf_names.h"
#include "models/llm/hf_source.h"
#include "models/llm/llm_plan.h"
#include "models/llm/teacher_forcing.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string Folder(const std::string& name) { return "tests/data/" + name; }

Json ReadJsonFile(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path << ": run from the root of the repository";
  return Json::parse(in);
}

class TinyFolder : public testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = Folder(GetParam());
  const Json golden_ = ReadJsonFile(folder_ + "/golden.json");
};

// Both sides sum products of f32 in f32, some hundred at most a row, but in
// another order, and angles are rounded differently: 1e-6 of a value each time,
// a few layers deep, on logits of about ten.
void ExpectLogits(const std::string& path, const std::string& name,
                  const Json& golden) {
  constexpr double kTolerance = 1e-4;
  LlmOptions options = TinyOptions(2);
  options.settings.compute_dtype = "f32";
  options.settings.kv_cache_dtype = "f32";
  options.settings.max_model_len = 128;
  StatusOr<LlmModel> model = LoadLlm(path, options);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->info.name, name);
  int seen = 0;
  double worst = 0;
  const Status status = ScoreTokens(
      *model, golden["tokens"].get<std::vector<int32_t>>(), 7,
      [&](int32_t position, std::span<const float> logits) {
        const auto row = golden["logits"].find(std::to_string(position));
        if (row == golden["logits"].end()) return;
        ++seen;
        ASSERT_EQ(row->size(), logits.size());
        for (size_t i = 0; i < logits.size(); ++i) {
          const double wanted = (*row)[i];
          worst = std::max(worst, std::fabs(wanted - logits[i]));
          ASSERT_NEAR(logits[i], wanted, kTolerance)
              << "position " << position << ", token " << i;
        }
      });
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(seen, 4);
  testing::Test::RecordProperty("worst", std::to_string(worst));
}

TEST_P(TinyFolder, LogitsAreThoseOfTransformers) {
  ExpectLogits(folder_, GetParam(), golden_);
}

// The same models as GGUF files, names and keys by the package gguf.
class TinyGguf : public TinyFolder {};

TEST_P(TinyGguf, LogitsAreThoseOfTransformers) {
  ExpectLogits(folder_ + "/model.gguf", GetParam(), golden_);
}

void ExpectTokens(const std::string& path, const Json& golden) {
  const auto source = OpenModelSource(path);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  StatusOr<Vocabulary> vocabulary = (*source)->ReadVocabulary();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
  const auto tokenizer = Tokenizer::Create(std::move(vocabulary).value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  ASSERT_GE(golden["texts"].size(), 20u);
  for (const Json& row : golden["texts"]) {
    const std::string text = row["text"];
    EXPECT_EQ((*tokenizer)
                  ->Encode(text, {.add_special = true, .parse_special = true}),
              row["ids"].get<std::vector<int32_t>>())
        << text;
  }
}

TEST_P(TinyFolder, TokensAreThoseOfTransformers) {
  ExpectTokens(folder_, golden_);
}

// Of SentencePiece's kind: merges in the folder, scores in the GGUF file.
// Special tokens that swallow spaces stand in the folder alone; no text here
// has any.
TEST(TinyGgufOfMistral, TokensAreThoseOfTransformers) {
  ExpectTokens(Folder("hf_mistral/model.gguf"),
               ReadJsonFile(Folder("hf_mistral") + "/golden.json"));
}

// Some of these texts have an accent behind its letter, which the file says as
// little of as those of Qwen do.
TEST(TinyGgufOfQwen, TokensAreThoseOfTransformers) {
  ExpectTokens(Folder("hf_qwen2/model.gguf"),
               ReadJsonFile(Folder("hf_qwen2") + "/golden.json"));
}

INSTANTIATE_TEST_SUITE_P(
    Folders, TinyFolder,
    testing::Values("hf_llama", "hf_llama_dynamic", "hf_llama_yarn",
                    "hf_mistral", "hf_mixtral", "hf_qwen2moe", "hf_qwen3moe",
                    "hf_qwen2", "hf_qwen3", "hf_gemma2", "hf_gemma3", "hf_gpt2",
                    "hf_gpt_neox", "hf_gpt_oss", "hf_gpt_oss_mxfp4",
                    "hf_granite", "hf_llama4", "hf_ministral", "hf_olmo2",
                    "hf_olmoe", "hf_phi3", "hf_smollm3", "hf_starcoder2"),
    [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(
    Folders, TinyGguf,
    testing::Values("hf_llama", "hf_llama_yarn", "hf_mistral", "hf_mixtral",
                    "hf_qwen2", "hf_qwen2moe", "hf_qwen3", "hf_qwen3moe",
                    "hf_gemma2", "hf_gemma3", "hf_gpt2", "hf_gpt_neox",
                    "hf_gpt_oss", "hf_gpt_oss_mxfp4", "hf_granite", "hf_llama4",
                    "hf_ministral", "hf_olmo2", "hf_olmoe", "hf_phi3",
                    "hf_smollm3", "hf_starcoder2"),
    [](const auto& test) { return test.param; });

// A copy of a folder whose language model is a part of another class: its
// tensors have longer names, its configuration is an inner one, and there are
// tensors that are none of its.
TEST(HfFolder, ALanguageModelWithinAnotherClassIsRead) {
  const std::string from = Folder("hf_llama4");
  const std::string to = TempPath("nested");
  fs::create_directories(to);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(from + "/" + name, to + "/" + name);
  }
  Json inner = ReadJsonFile(from + "/config.json");
  inner["architectures"] = {"SomethingElse"};
  inner["tie_word_embeddings"] = false;  // the outer word counts
  const Json config = {{"architectures", {"Llama4ForConditionalGeneration"}},
                       {"model_type", "llama4"},
                       {"tie_word_embeddings", true},
                       {"text_config", inner},
                       {"vision_config", Json::object()}};
  std::ofstream(to + "/config.json") << config;

  std::ifstream in(from + "/model.safetensors", std::ios::binary);
  uint64_t size = 0;
  in.read(reinterpret_cast<char*>(&size), sizeof size);
  std::string header(size, ' ');
  in.read(header.data(), static_cast<std::streamsize>(size));
  const std::string values{std::istreambuf_iterator<char>(in), {}};
  const Json plain = Json::parse(header);
  Json tensors;
  for (const auto& [name, about] : plain.items()) {
    tensors[name == "__metadata__" ? name : "language_model." + name] = about;
  }
  tensors["vision_model.positions"] = {
      {"dtype", "F32"},
      {"shape", {1}},
      {"data_offsets", {values.size(), values.size() + sizeof(float)}}};
  header = tensors.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  size = header.size();
  std::ofstream out(to + "/model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size);
  out << header << values << std::string(sizeof(float), '\0');
  out.close();
  ExpectLogits(to, fs::path(to).filename().string(),
               ReadJsonFile(from + "/golden.json"));
  EXPECT_FALSE(MakesVectors(to));
  const auto source = OpenModelSource(to);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->TensorName("output_norm.weight"),
            "language_model.model.norm.weight");
  fs::remove_all(to);
}

// A step of 8 bits is 1/127 of a block's greatest value, about 0.6 % of a
// matrix' norm as noise; 5 bits are 8 times coarser, 4 bits 16 times. Random
// weights this large make two layers' softmaxes steep, which multiplies noise
// by up to ten; beyond that a matrix would be a wrong one. The blocks' own bits
// are compared elsewhere.
TEST(HfFolder, QuantisedAtLoadStaysNear) {
  const Json golden = ReadJsonFile(Folder("hf_llama") + "/golden.json");
  const struct {
    const char* name;
    const char* shown;
    double most;
  } cases[] = {{"q8_0", "Q8_0", 0.06},
               {"q5_0", "Q5_0", 0.4},
               {"q5_1", "Q5_1", 0.4},
               {"q4_0", "Q4_0", 0.6},
               {"q4_1", "Q4_1", 0.6}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    LlmOptions options = TinyOptions(2);
    options.settings.compute_dtype = "f32";
    options.settings.kv_cache_dtype = "f32";
    options.settings.max_model_len = 128;
    options.settings.quantize = c.name;
    StatusOr<LlmModel> model = LoadLlm(Folder("hf_llama"), options);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ(model->info.quantization, c.shown);
    double error = 0, size = 0;
    const Status status = ScoreTokens(
        *model, golden["tokens"].get<std::vector<int32_t>>(), 0,
        [&](int32_t position, std::span<const float> logits) {
          const auto row = golden["logits"].find(std::to_string(position));
          if (row == golden["logits"].end()) return;
          for (size_t i = 0; i < logits.size(); ++i) {
            const double wanted = (*row)[i];
            error += std::pow(wanted - logits[i], 2);
            size += std::pow(wanted, 2);
          }
        });
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_LT(std::sqrt(error / size), c.most);
    EXPECT_GT(error, 0);
  }
}

TEST(HfFolder, QuantiseSaysWhatItCannotDo) {
  LlmOptions options = TinyOptions(1);
  options.settings.quantize = "q3_k";
  EXPECT_EQ(LoadLlm(Folder("hf_llama"), options).status().field(), "quantize");
  options.settings.quantize = "q8_0";
  const std::string path = TempPath("quantised_already.gguf");
  ASSERT_TRUE(WriteTinyGguf({.type = GgmlType::kQ4_1}, path));
  EXPECT_NE(
      LoadLlm(path, options).status().message().find("is Q8_0 already; it is"),
      std::string::npos)
      << LoadLlm(path, options).status().message();
  // Experts that were laid out anew keep the name that the folder has.
  EXPECT_NE(LoadLlm(Folder("hf_gpt_oss_mxfp4"), options)
                .status()
                .message()
                .find("'model.layers.0.mlp.experts.gate_up_proj_blocks' is "
                      "MXFP4 already"),
            std::string::npos)
      << LoadLlm(Folder("hf_gpt_oss_mxfp4"), options).status().message();
  // A GGUF of floats is rounded like a folder.
  ASSERT_TRUE(WriteTinyGguf(
      {.type = GgmlType::kF16, .embedding_type = GgmlType::kF32}, path));
  const auto model = LoadLlm(path, options);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->info.quantization, "Q8_0");
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

TEST(HfFolder, EndsTemplatesAndDefaultsComeFromItsFiles) {
  const auto llama = OpenModelSource(Folder("hf_llama"));
  ASSERT_TRUE(llama.ok()) << llama.status().ToString();
  EXPECT_EQ((*llama)->format(), "Hugging Face folder, 2 files of safetensors");
  EXPECT_EQ(MainWeightType(**llama), "BF16");
  const StatusOr<Vocabulary> words = (*llama)->ReadVocabulary();
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(words->eog_ids, (std::vector<int32_t>{5, 301}));
  EXPECT_EQ(words->eos_id, 301);
  EXPECT_EQ(words->bos_id, 302);
  EXPECT_TRUE(words->add_bos);
  EXPECT_TRUE((*llama)->ChatTemplateText()->starts_with("{% for message"));
  const StatusOr<GenerationDefaults> defaults =
      (*llama)->ReadGenerationDefaults();
  ASSERT_TRUE(defaults.ok()) << defaults.status().ToString();
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_p, 0.9);
  EXPECT_FALSE(defaults->top_k.has_value());

  const auto qwen = OpenModelSource(Folder("hf_qwen2") + "/");
  ASSERT_TRUE(qwen.ok()) << qwen.status().ToString();
  EXPECT_EQ((*qwen)->name(), "hf_qwen2");
  EXPECT_EQ((*qwen)->ReadGenerationDefaults()->top_k, 20);
  EXPECT_EQ((*qwen)->ReadGenerationDefaults()->repetition_penalty, 1.1);
  EXPECT_TRUE((*qwen)->ChatTemplateText()->starts_with("{% for message"));
}

// A copy of a tiny folder whose files a test may change.
class Copy {
 public:
  explicit Copy(const std::string& name) : path_(TempPath("hf_copy_" + name)) {
    fs::remove_all(path_);
    fs::copy(Folder(name), path_);
  }
  ~Copy() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

  void Merge(const std::string& file, const Json& changes) {
    Json json = ReadJsonFile(path_ + "/" + file);
    json.merge_patch(changes);
    std::ofstream(path_ + "/" + file) << json;
  }
  std::string Error() const {
    const auto source = OpenModelSource(path_);
    if (!source.ok()) return std::string(source.status().message());
    const auto plan = PlanLlm(**source);
    if (!plan.ok()) return std::string(plan.status().message());
    const auto words = VocabularyFor(**source, plan->config);
    return words.ok() ? "" : std::string(words.status().message());
  }

 private:
  const std::string path_;
};

TEST(HfFolder, OfSeveralTemplatesTheOneNamedDefaultIsUsed) {
  Copy folder("hf_qwen2");
  fs::remove(folder.path() + "/chat_template.jinja");
  const auto templates = [&](const Json& list) {
    folder.Merge("tokenizer_config.json", {{"chat_template", list}});
    return (*OpenModelSource(folder.path()))->ChatTemplateText();
  };
  const Json tools = {{"name", "tool_use"}, {"template", "tools"}};
  const Json rag = {{"name", "rag"}, {"template", "rag"}};
  const Json plain = {{"name", "default"}, {"template", "plain"}};
  EXPECT_EQ(*templates({tools, plain}), "plain");
  const StatusOr<std::string> none = templates({tools, rag});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find(
                "has the chat templates 'tool_use', 'rag' and none named "
                "'default'"),
            std::string::npos)
      << none.status().ToString();
  EXPECT_EQ(*templates(Json::array()), "");
  // The model still answers, without chats.
  EXPECT_EQ(templates(Json::array({rag})).status().code(),
            StatusCode::kInvalidArgument);
  const auto model = LoadLlm(folder.path(), TinyOptions(1));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->chat_template, nullptr);
}

void ExpectSays(const Copy& folder, const std::string& part) {
  EXPECT_NE(folder.Error().find(part), std::string::npos)
      << folder.Error() << "\n  lacks: " << part;
}

// The error after one change of config.json.
void ExpectConfigSays(const Json& changes, const std::string& part) {
  Copy folder("hf_qwen2");
  folder.Merge("config.json", changes);
  ExpectSays(folder, part);
}

TEST(HfFolder, ConfigsThatCannotBeServedSayWhy) {
  ExpectConfigSays({{"architectures", {"MambaForCausalLM"}}},
                   "the architecture 'MambaForCausalLM' is not served");
  ExpectConfigSays({{"num_hidden_layers", 3}},
                   "the file has no tensor "
                   "'model.layers.2.input_layernorm.weight'");
  ExpectConfigSays({{"hidden_size", 64}},
                   "tensor 'model.embed_tokens.weight' is 32 x 320");
  ExpectConfigSays({{"hidden_size", nullptr}}, "hidden_size");
  ExpectConfigSays({{"hidden_size", "wide"}},
                   "key 'hidden_size' has type string; expected an integer");
  ExpectConfigSays({{"num_key_value_heads", 0}}, "num_key_value_heads is 0");
  ExpectConfigSays({{"hidden_act", "gelu"}}, "hidden_act is 'gelu'");
  ExpectConfigSays({{"quantization_config", {{"quant_method", "gptq"}}}},
                   "weights quantised by 'gptq' are not supported");
  ExpectConfigSays({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
  ExpectConfigSays({{"rope_parameters", {{"rope_type", "spiral"}}}},
                   "rope_scaling is of type 'spiral'");
  ExpectConfigSays({{"rope_parameters", {{"rope_type", "llama3"}}}},
                   "rope_scaling.factor must be a number above 0");
  ExpectConfigSays({{"num_experts", 8}},
                   "mixture of 8 experts, which is not supported in the "
                   "family 'qwen2'");
  ExpectConfigSays({{"tie_word_embeddings", false}},
                   "no tensor 'lm_head.weight'");
  ExpectConfigSays({{"use_sliding_window", true},
                    {"sliding_window", 16},
                    {"max_window_layers", 1},
                    {"layer_types", nullptr}},
                   "");
  // A whole number of keys, or the shape is refused like any other.
  ExpectConfigSays({{"use_sliding_window", true},
                    {"sliding_window", -3},
                    {"max_window_layers", 0},
                    {"layer_types", nullptr}},
                   "sliding_window is -3");
  ExpectConfigSays({{"eos_token_id", -1}}, "eos_token_id holds -1");
  ExpectConfigSays({{"use_sliding_window", true},
                    {"sliding_window", 16},
                    {"max_window_layers", 0},
                    {"layer_types", nullptr}},
                   "");
  // Windows that no position would notice.
  ExpectConfigSays({{"sliding_window", 16}}, "");
  ExpectConfigSays({{"use_sliding_window", true}, {"sliding_window", 256}}, "");
}

TEST(HfFolder, ExpertsThatContradictTheFileSayWhy) {
  const struct {
    Json changes;
    const char* says;
  } cases[] = {
      {{{"num_experts_per_tok", nullptr}}, "num_experts_per_tok is 0, 1 to 64"},
      {{{"num_experts_per_tok", 6}}, "num_experts_per_tok is 6 of 5 experts"},
      {{{"num_local_experts", 7}},
       "'model.layers.0.block_sparse_moe.gate.weight' is 64 x 5"},
      {{{"intermediate_size", 48}},
       "'model.layers.0.block_sparse_moe.experts.0.w1.weight' is 64 x 32"},
  };
  for (const auto& c : cases) {
    Copy folder("hf_mixtral");
    folder.Merge("config.json", c.changes);
    ExpectSays(folder, c.says);
  }
}

TEST(HfFolder, FilesThatLackOrLieSayWhich) {
  {
    Copy folder("hf_llama");
    fs::remove(folder.path() + "/model-00002-of-00002.safetensors");
    ExpectSays(folder, "model-00002-of-00002.safetensors'");
    fs::remove(folder.path() + "/model.safetensors.index.json");
    ExpectSays(folder, "has neither model.safetensors nor");
    fs::remove(folder.path() + "/config.json");
    ExpectSays(folder, "has no config.json");
  }
  {
    Copy folder("hf_llama");
    folder.Merge("model.safetensors.index.json",
                 {{"weight_map", {{"x", "../../secret.safetensors"}}}});
    ExpectSays(folder, "no name of a file in the folder");
  }
  {
    Copy folder("hf_llama");
    fs::copy(folder.path() + "/model-00001-of-00002.safetensors",
             folder.path() + "/again.safetensors");
    folder.Merge("model.safetensors.index.json",
                 {{"weight_map", {{"x", "again.safetensors"}}}});
    ExpectSays(folder, "is in two files of the folder");
  }
  {
    Copy folder("hf_qwen2");
    fs::resize_file(folder.path() + "/model.safetensors", 5000);
    ExpectSays(folder, "truncated");
  }
  {
    Copy folder("hf_qwen2");
    fs::remove(folder.path() + "/tokenizer.json");
    ExpectSays(folder, "has no tokenizer.json");
    std::ofstream(folder.path() + "/tokenizer.json") << "{";
    ExpectSays(folder, "tokenizer.json': malformed JSON");
  }
  {
    Copy folder("hf_qwen2");
    folder.Merge("generation_config.json", {{"temperature", 9}});
    const auto source = OpenModelSource(folder.path());
    ASSERT_TRUE(source.ok());
    EXPECT_NE((*source)->ReadGenerationDefaults().status().message().find(
                  "temperature is 9"),
              std::string::npos);
  }
  EXPECT_NE(OpenModelSource(Folder("hf_qwen2") + "/model.safetensors")
                .status()
                .message()
                .find("give the folder it is in"),
            std::string::npos);
}

TEST(HfConfig, TensorNamesGoBothWays) {
  EXPECT_EQ(NameOfHfTensor("model.layers.12.self_attn.q_proj.weight"),
            "blk.12.attn_q.weight");
  EXPECT_EQ(HfTensorName("blk.12.attn_q.weight"),
            "model.layers.12.self_attn.q_proj.weight");
  EXPECT_EQ(NameOfHfTensor("lm_head.weight"), "output.weight");
  for (const char* unknown :
       {"model.layers.01.mlp.up_proj.weight", "model.layers..x",
        "model.layers.1.mlp.up_proj.bias", "transformer.wte.weight", ""}) {
    EXPECT_EQ(NameOfHfTensor(unknown), "") << unknown;
  }
}

}  // namespace
}  // namespace millrace::models
