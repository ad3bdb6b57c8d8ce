#include "server/http/openai_shapes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonString, ReadsBackAsWritten) {
  std::string text;
  for (int c = 1; c < 0x80; ++c) text.push_back(static_cast<char>(c));
  text += "\xc3\xa9\xf0\x9f\x98\x80";
  EXPECT_EQ(Json::parse(JsonString(text)).get<std::string>(), text);
}

TEST(JsonString, NulAndIllFormedBytesAreSafe) {
  EXPECT_EQ(JsonString(std::string("a\0b", 3)), "\"a\\u0000b\"");
  EXPECT_EQ(JsonString("a\xff\xc3"), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST(Shapes, FirstPromptTokenHasNoLogprob) {
  AnswerShape shape;
  shape.chat = false;
  shape.logprobs = true;
  ChoiceText choice;
  choice.text = "\xc3\xa9t";
  handlers::TokenLogprobs first;
  first.chosen.bytes = "\xc3\xa9";
  first.has_logprob = false;
  handlers::TokenLogprobs second;
  second.chosen = {2, "t", -INFINITY};
  second.top = {{2, "t", -0.5f}};
  choice.logprobs = {first, second};
  const Json body = Json::parse(AnswerJson(shape, {choice}, {}));
  EXPECT_EQ(body["choices"][0]["logprobs"],
            Json::parse(R"({"tokens":["é","t"],"token_logprobs":[null,-9999],)"
                        R"("top_logprobs":[null,{"t":-0.5}],)"
                        R"("text_offset":[0,1]})"));
}

TEST(Shapes, TextOffsetsGoOnFromChunkToChunk) {
  AnswerShape shape;
  shape.chat = false;
  shape.logprobs = true;
  shape.num_choices = 2;
  ChunkMaker chunks(shape);
  handlers::OutputDelta chunk;
  chunk.text = "ab";
  chunk.logprobs.resize(1);
  chunk.logprobs[0].chosen.bytes = "ab";
  const auto offset = [&](int index) {
    const std::string event = chunks.Text(index, chunk, nullptr);
    return Json::parse(
               event.substr(6))["choices"][0]["logprobs"]["text_offset"][0]
        .get<int>();
  };
  EXPECT_EQ(offset(0), 0);
  EXPECT_EQ(offset(0), 2);
  EXPECT_EQ(offset(1), 0);
  EXPECT_EQ(offset(0), 4);
}

TEST(Shapes, StopReasonIsTextOrIdOrNull) {
  AnswerShape shape;
  ChoiceText choice;
  choice.reason = handlers::FinishReason::kStop;
  const auto reason = [&] {
    return Json::parse(
        AnswerJson(shape, {choice}, {}))["choices"][0]["stop_reason"];
  };
  EXPECT_TRUE(reason().is_null());
  choice.stop_reason = 17;
  EXPECT_EQ(reason(), 17);
  choice.stop_reason = std::string("END");
  EXPECT_EQ(reason(), "END");
}

}  // namespace
}  // namespace millrace::server::http
