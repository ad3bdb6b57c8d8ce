// What llama.cpp's /completion and /infill ask for.
#include "server/http/llama_input.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/byte_handler.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

StatusOr<LlamaBody> Read(const std::string& body) {
  return ReadLlamaBody(ByteHandler(), Json::parse(body));
}

TEST(LlamaInput, TheLengthHasThreeNames) {
  struct Case {
    const char* body;
    int64_t n_predict;
    std::optional<int64_t> max_tokens;
  };
  for (const Case& one :
       std::vector<Case>{{"{}", -1, {}},
                         {R"({"n_predict": 5})", 5, 5},
                         {R"({"max_tokens": 5})", 5, 5},
                         {R"({"max_completion_tokens": 5})", 5, 5},
                         {R"({"n_predict": 5, "max_tokens": 6})", 5, 5},
                         {R"({"n_predict": -2, "max_tokens": 6})", -1, {}},
                         {R"({"n_predict": 0})", 0, 1}}) {
    const auto wanted = Read(one.body);
    ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
    EXPECT_EQ(wanted->n_predict, one.n_predict) << one.body;
    EXPECT_EQ(wanted->options.max_tokens, one.max_tokens) << one.body;
    EXPECT_TRUE(wanted->options.clip_to_context);
  }
  EXPECT_EQ(Read(R"({"max_tokens": "5"})").status().field(), "max_tokens");
}

TEST(LlamaInput, SamplingFieldsAreRead) {
  const auto wanted = Read(
      R"({"repeat_penalty": 1.5, "n_cmpl": 2, "n_probs": 3, "seed": 4294967295,
          "logit_bias": [[5, -1.5], ["ab", false]], "stream": true,
          "samplers": ["penalties", "temperature"], "top_k": 9})");
  ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
  EXPECT_EQ(wanted->options.repetition_penalty, 1.5);
  EXPECT_EQ(wanted->options.n, 2);
  EXPECT_EQ(wanted->options.logprobs, 3);
  EXPECT_EQ(wanted->options.seed, std::nullopt);
  EXPECT_EQ(wanted->options.top_k, 0);
  const std::vector<std::pair<int32_t, float>> bias = {
      {5, -1.5f}, {'a', -100}, {'b', -100}};
  EXPECT_EQ(wanted->options.logit_bias, bias);
  EXPECT_TRUE(wanted->stream && wanted->options.return_ids);
  for (const char* no_id : {"-5", "2147483648", "18446744073709551611"}) {
    const std::string pair = "[[" + std::string(no_id) + ", 10]]";
    EXPECT_EQ(Read("{\"logit_bias\": " + pair + "}").status().field(),
              "logit_bias[0][0]")
        << no_id;
  }
  // 0 asks for no probabilities.
  EXPECT_EQ(Read(R"({"n_probs": 0})")->options.logprobs, std::nullopt);
  EXPECT_EQ(Read(R"({"logprobs": 0})")->options.logprobs, std::nullopt);
  EXPECT_EQ(Read(R"({"logprobs": 2})")->options.logprobs, 2);
  for (const char* field : {"lora", "grammar_lazy"}) {
    const std::string value = *field == 'l' ? "[{}]" : "true";
    EXPECT_EQ(Read("{\"" + std::string(field) + "\": " + value + "}")
                  .status()
                  .field(),
              field);
  }
}

std::string Text(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 256) text += static_cast<char>(id);
    if (id >= 256) text += "<" + std::to_string(id - 256) + ">";
  }
  return text;
}

std::string Infill(std::vector<std::string> special, const std::string& body) {
  const auto prompt =
      ReadInfillPrompt(ByteHandler(std::move(special)), Json::parse(body), "m");
  if (prompt.ok()) return Text(prompt->ids);
  return std::string(prompt.status().field()) + ": " +
         std::string(prompt.status().message());
}

constexpr char kGap[] =
    R"({"input_prefix": "a<fim_suffix>", "input_suffix": "b", "prompt": "c")";

TEST(LlamaInput, AGapHasTheModelsOwnMarks) {
  const std::vector<std::string> few = {"<fim_prefix>", "<fim_suffix>",
                                        "<fim_middle>"};
  const std::vector<std::string> all = {"<|fim_prefix|>", "<|fim_suffix|>",
                                        "<|fim_middle|>", "<|repo_name|>",
                                        "<|file_sep|>"};
  EXPECT_EQ(Infill(few, std::string(kGap) + "}"), "<0>a<fim_suffix><1>b<2>c");
  const std::string files =
      std::string(kGap) +
      R"(, "input_extra": [{"filename": "f.h", "text": "F"},
                           {"filename": "g.h", "text": "<|file_sep|>"}]})";
  EXPECT_EQ(Infill(few, files),
            "f.h:\nF\n\ng.h:\n<|file_sep|>\n\n<0>a<fim_suffix><1>b<2>c");
  EXPECT_EQ(Infill(all, files),
            "<3>repository\n<4>f.h\nF<4>g.h\n<|file_sep|><4>current\n"
            "<0>a<fim_suffix><1>b<2>c");
  EXPECT_EQ(Infill(all, R"({"input_extra": [{"text": "F"}]})"),
            "input_extra[0].filename: input_extra[0].filename is missing");
  EXPECT_EQ(Infill(all, R"({"input_extra": [7]})").substr(0, 16),
            "input_extra[0]: ");
  EXPECT_EQ(
      ReadInfillPrompt(ByteHandler(), Json::object(), "m").status().reason(),
      "no_infill_tokens");
}

TEST(LlamaInput, TheSamplerInfillIsOfInfillAlone) {
  const Json body = Json::parse(R"({"samplers": ["top_k", "infill"]})");
  EXPECT_EQ(Read(body.dump()).status().field(), "samplers");
  EXPECT_TRUE(Read(WithoutInfillSampler(body).dump()).ok());
  EXPECT_EQ(WithoutInfillSampler(Json{{"samplers", "kpi"}})["samplers"], "kp");
  EXPECT_EQ(WithoutInfillSampler(Json{{"samplers", 3}})["samplers"], 3);
}

}  // namespace
}  // namespace millrace::server::http
