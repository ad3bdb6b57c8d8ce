// Lines of a batch's input and of its results.
#include "server/batches/batch_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/batches/validate_batch.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kChat = "/v1/chat/completions";

std::string Line(const std::string& id, const std::string& body = "{}") {
  return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": ")" +
         kChat + R"(", "body": )" + body + "}\n";
}

TEST(BatchLine, IsReadWithItsModel) {
  const auto line =
      ReadBatchLine(Line("a", R"({"model": "m", "x": 1})"), kChat);
  ASSERT_TRUE(line.ok()) << line.status().ToString();
  EXPECT_EQ(line->custom_id, "a");
  EXPECT_EQ(line->model, "m");
  EXPECT_EQ(line->body, R"({"model":"m","x":1})");
}

TEST(BatchLine, RefusalsHaveOpenAisCodes) {
  constexpr std::pair<const char*, const char*> kBad[] = {
      {"{", "invalid_json_line"},
      {"[]", "invalid_json_line"},
      {R"({"method": "POST"})", "missing_required_parameter"},
      {R"({"custom_id": 7})", "invalid_type"},
      {R"({"custom_id": ""})", "invalid_custom_id"},
      {R"({"custom_id": "a", "method": "GET"})", "invalid_method"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})",
       "mismatched_url"},
      {R"({"custom_id": "a", "method": "POST",
           "url": "/v1/chat/completions"})",
       "missing_required_parameter"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
           "body": []})",
       "invalid_type"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
           "body": {"stream": true}})",
       "invalid_request"}};
  for (const auto& [text, code] : kBad) {
    const auto line = ReadBatchLine(text, kChat);
    ASSERT_FALSE(line.ok()) << text;
    EXPECT_EQ(line.status().reason(), code) << text;
  }
}

TEST(ValidateBatch, TellsTheLinesThatAreWrong) {
  const BatchCheck check = ValidateBatch(
      Line("a", R"({"model": "m"})") + "\r\n" + "{}\n" +
          Line("a", R"({"model": "m"})") + Line("b", R"({"model": "n"})"),
      kChat);
  ASSERT_EQ(check.errors.size(), 3u);
  EXPECT_EQ(check.errors[0].code, "missing_required_parameter");
  EXPECT_EQ(check.errors[0].line, 3);
  EXPECT_EQ(check.errors[0].param, "custom_id");
  EXPECT_EQ(check.errors[1].code, "duplicate_custom_id");
  EXPECT_EQ(check.errors[1].line, 4);
  EXPECT_EQ(check.errors[2].code, "mismatched_model");
}

TEST(ValidateBatch, HasLimits) {
  EXPECT_EQ(ValidateBatch("\n \n", kChat).errors.at(0).code, "empty_file");
  EXPECT_EQ(ValidateBatch(Line("a") + Line("b"), kChat, 1).errors.at(0).code,
            "too_many_tasks");
  EXPECT_TRUE(ValidateBatch(Line("a") + Line("b"), kChat, 2).errors.empty());
  std::string bad;
  for (int i = 0; i < 300; ++i) bad += "x\n";
  EXPECT_EQ(ValidateBatch(bad, kChat).errors.size(), 100u);
}

TEST(BatchLine, AnAnswerIsOneLineThatIsReadBack) {
  const std::string line =
      AnswerLine("a\"\n", {.status = 200,
                           .request_id = "req-1",
                           .body = "{\n\"usage\": {\"prompt_tokens\": 3, "
                                   "\"completion_tokens\": 4}}"});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto back = ReadRecordedLine({line.data(), line.size() - 1});
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->custom_id, "a\"\n");
  EXPECT_EQ(back->usage.input_tokens, 3);
  EXPECT_EQ(back->usage.output_tokens, 4);
  const Json json = Json::parse(line);
  EXPECT_EQ(json["response"]["status_code"], 200);
  EXPECT_EQ(json["response"]["request_id"], "req-1");
  EXPECT_TRUE(json["error"].is_null());
}

TEST(Batch, ItsStateIsReadBackAsItWas) {
  Batch batch;
  batch.id = "batch_1";
  batch.tenant = "t";
  batch.endpoint = kChat;
  batch.model = "m";
  batch.input_file_id = "file-1";
  batch.metadata = R"({"k":"v"})";
  batch.created_at = 5;
  batch.expires_at = 6;
  batch.errors = {{.code = "c", .message = "m", .param = "", .line = 0},
                  {.code = "d", .message = "n", .param = "p", .line = 7}};
  batch.total = 3;
  batch.completed = 1;
  batch.failed = 2;
  batch.usage = {.input_tokens = 1,
                 .cached_tokens = 2,
                 .output_tokens = 3,
                 .reasoning_tokens = 4};
  batch.has_output = true;
  batch.output_id = "file-2";
  batch.error_id = "file-3";
  batch.output_expires_after = 3600;
  batch.ending = "completed";
  batch.recorded = true;
  batch.number = 9;
  batch.Become("finalizing", 8);
  const std::string text = BatchStateText(batch);
  const auto back = ReadBatchState(text);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(BatchStateText(*back), text);
  EXPECT_FALSE(ReadBatchState("{}").ok());
  const Json told = Json::parse(BatchJson(batch));
  EXPECT_FALSE(told.contains("tenant"));
  EXPECT_EQ(told["finalizing_at"], 8);
  EXPECT_EQ(told["output_file_id"], "file-2");
  EXPECT_TRUE(told["error_file_id"].is_null());
}

}  // namespace
}  // namespace millrace::server
