#include "loadtest/body_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/sse.h"

namespace millrace::loadtest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kRole[] =
    R"(data: {"choices":[{"delta":{"role":"assistant","content":""}}]})"
    "\n\n";
constexpr char kHello[] = R"(data: {"choices":[{"delta":{"content":"Hello"}}]})"
                          "\n\n";
constexpr char kThere[] =
    R"(data: {"choices":[{"delta":{"content":" there"}}]})"
    "\n\n";
constexpr char kUsage[] =
    R"(data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}})"
    "\n\n";
constexpr char kDone[] = "data: [DONE]\n\n";

Time At(int64_t ms) { return Time(std::chrono::milliseconds(ms)); }

std::unique_ptr<BodyReader> Stream() {
  auto reader = MakeBodyReader(EndpointType::kChat, true);
  reader->Begin(-1);
  return reader;
}

RequestRecord ReadWhole(EndpointType type, std::string_view body,
                        int64_t json_bytes = -1) {
  const auto reader = MakeBodyReader(type, false);
  RequestRecord record;
  reader->Begin(json_bytes);
  reader->Add(body, At(1), record);
  reader->End(record);
  return record;
}

TEST(SseParser, EventsComeOutWholeWhateverThePieces) {
  const std::string text =
      "data: one\r\n\r\n: a comment\nevent: x\ndata:two\ndata: three\n\n"
      "data: never ended";
  for (size_t size = 1; size <= text.size(); ++size) {
    SseParser parser;
    std::vector<std::string> events;
    for (size_t at = 0; at < text.size(); at += size) {
      parser.Add(std::string_view(text).substr(at, size),
                 [&](std::string_view data) { events.emplace_back(data); });
    }
    EXPECT_THAT(events, ElementsAre("one", "two\nthree")) << size;
    EXPECT_TRUE(parser.pending());
  }
}

TEST(BodyReader, AStreamTellsWhenOutputCame) {
  const auto reader = Stream();
  RequestRecord record;
  reader->Add(kRole, At(1), record);
  reader->Add(kHello, At(2), record);
  reader->Add(kThere, At(3), record);
  reader->Add(std::string(kUsage) + kDone, At(4), record);
  reader->End(record);
  EXPECT_EQ(record.outcome, Outcome::kOk) << record.error;
  EXPECT_THAT(record.chunk_times, ElementsAre(At(2), At(3)))
      << "a chunk without text is no token";
  EXPECT_EQ(record.input_tokens, 7);
  EXPECT_EQ(record.output_tokens, 3);
  EXPECT_EQ(reader->text(), "Hello there");
}

TEST(BodyReader, WithoutUsageChunksAreTokens) {
  const auto reader = Stream();
  RequestRecord record;
  reader->Add(std::string(kHello) + kThere + kDone, At(2), record);
  reader->End(record);
  EXPECT_EQ(record.output_tokens, 2);
}

TEST(BodyReader, AStreamWithoutItsEndIsTruncated) {
  for (const bool cut : {false, true}) {
    const auto reader = Stream();
    RequestRecord record;
    reader->Add(kHello, At(2), record);
    cut ? reader->Cut(record) : reader->End(record);
    EXPECT_EQ(record.outcome, Outcome::kTruncatedStream);
    EXPECT_THAT(record.error, HasSubstr("[DONE]"));
  }
}

TEST(BodyReader, AnErrorInsideAStreamIsAFailure) {
  const auto reader = Stream();
  RequestRecord record;
  reader->Add(std::string(kHello) +
                  "data: {\"error\":{\"message\":\"oops\"}}\n\n" + kDone,
              At(2), record);
  reader->End(record);
  EXPECT_EQ(record.outcome, Outcome::kStreamError);
  EXPECT_THAT(record.error, HasSubstr("oops"));
}

TEST(BodyReader, WrongJsonInAStreamIsAFailure) {
  for (const char* event :
       {"{\"choices\":[", "[]", "{\"choices\":3}", "{\"choices\":[1]}", "{}"}) {
    const auto reader = Stream();
    RequestRecord record;
    reader->Add("data: " + std::string(event) + "\n\n" + kDone, At(2), record);
    reader->End(record);
    EXPECT_EQ(record.outcome, Outcome::kWrongJson) << event;
  }
}

TEST(BodyReader, AReaderForgetsTheRequestBefore) {
  const auto reader = Stream();
  RequestRecord first;
  reader->Add(std::string(kHello) + kDone, At(1), first);
  reader->End(first);
  RequestRecord second;
  reader->Begin(-1);
  reader->Add(kThere, At(2), second);
  reader->End(second);
  EXPECT_EQ(second.outcome, Outcome::kTruncatedStream);
  EXPECT_EQ(reader->text(), " there");
}

TEST(BodyReader, WholeRepliesMustHoldWhatTheEndpointOwes) {
  const RequestRecord chat =
      ReadWhole(EndpointType::kChat,
                R"({"choices":[{"message":{"content":"x"}}],)"
                R"("usage":{"prompt_tokens":4,"completion_tokens":9}})");
  EXPECT_EQ(chat.outcome, Outcome::kOk) << chat.error;
  EXPECT_EQ(chat.output_tokens, 9);
  EXPECT_EQ(ReadWhole(EndpointType::kChat, R"({"choices":[]})").outcome,
            Outcome::kWrongJson);
  EXPECT_EQ(ReadWhole(EndpointType::kEmbeddings, R"({"data":[{}]})").outcome,
            Outcome::kOk);
  EXPECT_EQ(ReadWhole(EndpointType::kEmbeddings, "{}").outcome,
            Outcome::kWrongJson);
  EXPECT_EQ(ReadWhole(EndpointType::kTorchserve, "anything").outcome,
            Outcome::kOk);
}

TEST(BodyReader, KserveRepliesMayEndInBytes) {
  const std::string json = R"({"outputs":[{"name":"y"}]})";
  const auto size = static_cast<int64_t>(json.size());
  EXPECT_EQ(ReadWhole(EndpointType::kKserve, json).outcome, Outcome::kOk);
  EXPECT_EQ(ReadWhole(EndpointType::kKserve, json + "\1\2\3", size).outcome,
            Outcome::kOk);
  EXPECT_EQ(ReadWhole(EndpointType::kKserve, json + "\1\2\3").outcome,
            Outcome::kWrongJson);
  EXPECT_EQ(ReadWhole(EndpointType::kKserve, json, size + 1).outcome,
            Outcome::kProtocol);
  EXPECT_EQ(ReadWhole(EndpointType::kKserve, R"({"error":"x"})").outcome,
            Outcome::kWrongJson);
}

TEST(BodyReader, TimingsOfTheServerAreKept) {
  const RequestRecord record =
      ReadWhole(EndpointType::kChat,
                R"({"choices":[{"message":{"content":"a"}}],)"
                R"("timings":{"prompt_ms":12.5,"predicted_ms":30}})");
  EXPECT_EQ(record.outcome, Outcome::kOk);
  EXPECT_EQ(record.server_prefill_ms, 12.5);
  EXPECT_EQ(record.server_decode_ms, 30);
  const RequestRecord without =
      ReadWhole(EndpointType::kChat,
                R"({"choices":[{"message":{"content":"a"}}],"timings":7})");
  EXPECT_EQ(without.server_prefill_ms, -1);
}

}  // namespace
}  // namespace millrace::loadtest
