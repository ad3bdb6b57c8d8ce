// Which sampling a model's requests get that leave it out.
#include "models/llm/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "models/llm/gguf_source.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"

namespace millrace::models {
namespace {

using ::testing::HasSubstr;

// A GGUF file of keys alone.
class File {
 public:
  explicit File(const std::string& name,
                const std::vector<std::pair<std::string, float>>& keys = {},
                uint32_t top_k = 0) {
    GgufBytes out;
    out.String("general.architecture", "llama");
    out.String("general.name", name);
    for (const auto& [key, value] : keys) {
      out.Float32("general.sampling." + key, value);
    }
    if (top_k > 0) out.Uint32("general.sampling.top_k", top_k);
    bytes_ = out.Finish();
  }
  StatusOr<ModelGeneration> Read(const config::LlmSettings& settings) const {
    ASSIGN_OR_RETURN(GgufFile file,
                     GgufFile::Parse(std::as_bytes(std::span(bytes_))));
    return ReadModelGeneration(GgufSource(std::move(file)), settings);
  }

 private:
  std::string bytes_;
};

config::LlmSettings Settings(const std::string& generation_config,
                             const std::string& fields = "") {
  config::LlmSettings settings;
  settings.generation_config = generation_config;
  settings.override_generation_config = fields;
  return settings;
}

TEST(GenerationConfig, KeysOfAGgufFileAreTaken) {
  const File file("x",
                  {{"temp", 0.6f},
                   {"top_p", 0.95f},
                   {"min_p", 0.05f},
                   {"penalty_repeat", 1.1f}},
                  40);
  const auto read = file.Read(Settings("auto"));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->origin, "model");
  EXPECT_EQ(read->defaults.temperature, 0.6) << "not 0.60000002384";
  EXPECT_EQ(read->defaults.top_p, 0.95);
  EXPECT_EQ(read->defaults.min_p, 0.05);
  EXPECT_EQ(read->defaults.repetition_penalty, 1.1);
  EXPECT_EQ(read->defaults.top_k, 40);
}

TEST(GenerationConfig, ThenTheAdviceOfTheMakers) {
  const File file("Smollm2 135M 8k Lc100K Mix1 Ep2");
  const auto read = file.Read(Settings("auto"));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->origin, "makers' advice");
  EXPECT_EQ(read->defaults.temperature, 0.2);
  EXPECT_EQ(read->defaults.top_p, 0.9);
  const File with_keys("Smollm2 135M 8k Lc100K Mix1 Ep2", {{"temp", 1.0f}});
  EXPECT_EQ(with_keys.Read(Settings("auto"))->defaults.temperature, 1.0);
  EXPECT_FALSE(with_keys.Read(Settings("auto"))->defaults.top_p.has_value());
  EXPECT_EQ(File("Other").Read(Settings("auto"))->origin, "none");
}

TEST(GenerationConfig, NoneAndVllmIgnoreBoth) {
  const File file("Smollm2 135M Instruct", {{"temp", 0.6f}});
  for (const char* word : {"none", "vllm"}) {
    const auto read = file.Read(Settings(word));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->origin, "none");
    EXPECT_TRUE(NamedValues(read->defaults).empty());
  }
}

TEST(GenerationConfig, AnotherFolderMayBeNamed) {
  const std::string folder = TempPath("generation");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/generation_config.json")
      << R"({"do_sample": true, "eos_token_id": [1, 2], "temperature": 0.4,
             "top_k": 20, "top_p": null})";
  const File file("x", {{"temp", 0.6f}});
  const auto read = file.Read(Settings(folder));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->origin, folder);
  EXPECT_EQ(read->defaults.temperature, 0.4);
  EXPECT_EQ(read->defaults.top_k, 20);
  EXPECT_FALSE(read->defaults.top_p.has_value());
  std::filesystem::remove_all(folder);
  const Status gone = file.Read(Settings(folder)).status();
  EXPECT_EQ(gone.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("auto, none, vllm"));
}

TEST(GenerationConfig, AnOverrideChangesSingleFields) {
  const File file("x", {{"temp", 0.6f}, {"top_p", 0.9f}});
  const auto read =
      file.Read(Settings("auto", R"({"temperature": 0, "top_k": 5})"));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->defaults.temperature, 0);
  EXPECT_EQ(read->defaults.top_p, 0.9);
  EXPECT_EQ(read->defaults.top_k, 5);
  EXPECT_EQ(read->origin, "model, override_generation_config");
  EXPECT_EQ(file.Read(Settings("none", R"({"min_p": 0.1})"))->origin,
            "override_generation_config");
}

TEST(GenerationConfig, WrongValuesNameFieldValueAndBounds) {
  const auto error = [](const StatusOr<ModelGeneration>& read) {
    return std::string(read.status().message());
  };
  const File good("x");
  EXPECT_THAT(error(good.Read(Settings("auto", R"({"temp": 1})"))),
              HasSubstr("has the field 'temp'; it takes temperature"));
  EXPECT_THAT(error(good.Read(Settings("auto", R"({"top_p": null})"))),
              HasSubstr("'top_p' without a value"));
  EXPECT_THAT(error(good.Read(Settings("auto", R"({"temperature": "hot"})"))),
              HasSubstr("temperature is \"hot\", which is out of range; "
                        "allowed is 0 to 2"));
  EXPECT_THAT(
      error(good.Read(Settings("auto", "temperature=1"))),
      HasSubstr("override_generation_config is 'temperature=1'; expected "
                "a JSON object such as {\"temperature\": 0.5}"));
  EXPECT_THAT(error(good.Read(Settings("auto", "[1]"))),
              HasSubstr("is '[1]'; expected a JSON object"));
  const File hot("x", {{"temp", 9.0f}});
  EXPECT_THAT(error(hot.Read(Settings("auto"))),
              HasSubstr("temperature is 9.0"));
  EXPECT_THAT(error(hot.Read(Settings("auto"))),
              HasSubstr("--generation-config none"));
}

}  // namespace
}  // namespace millrace::models
