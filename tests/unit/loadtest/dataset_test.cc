#include "loadtest/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "loadtest/requests.h"
#include "loadtest/synthetic.h"

namespace millrace::loadtest {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Json = nlohmann::json;

// The JSON of a request's bytes.
Json BodyOf(std::string_view request) {
  return Json::parse(request.substr(request.find("\r\n\r\n") + 4));
}

TEST(Dataset, ReadsEveryFormOfALine) {
  const auto dataset = ParseJsonl(
      R"({"prompt": "a", "max_tokens": 5})"
      "\n\n"
      R"({"turns": ["b", {"text": "c", "delay": 250}], "system": "s"})"
      "\n"
      R"({"messages": [{"role": "user", "content": "d"}]})"
      "\r\n"
      R"({"timestamp": 1500, "input_length": 9, "output_length": 3})");
  ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
  ASSERT_EQ(dataset->size(), 4u);
  EXPECT_EQ((*dataset)[0].turns[0].text, "a");
  EXPECT_EQ((*dataset)[0].turns[0].output_tokens, 5);
  EXPECT_EQ((*dataset)[1].system, "s");
  EXPECT_EQ((*dataset)[1].turns[1].delay, 250ms);
  EXPECT_THAT((*dataset)[2].messages, HasSubstr("\"d\""));
  EXPECT_EQ((*dataset)[3].due, std::chrono::nanoseconds(1500ms));
  EXPECT_EQ((*dataset)[3].input_length, 9);
  EXPECT_EQ((*dataset)[3].turns[0].output_tokens, 3);
}

TEST(Dataset, ErrorsNameTheLine) {
  const auto message = [](const char* text) {
    return std::string(ParseJsonl(text).status().message());
  };
  EXPECT_THAT(message("{\"prompt\":\"a\"}\nnot json"), HasSubstr("line 2"));
  EXPECT_THAT(message("{\"prompt\": 3}"), HasSubstr("must be a string"));
  EXPECT_THAT(message("{\"turns\": []}"), HasSubstr("one entry"));
  EXPECT_THAT(message("{\"turns\": [{}]}"), HasSubstr("\"text\""));
  EXPECT_THAT(message("{}"), HasSubstr("nothing to send"));
  EXPECT_THAT(message("{\"input_length\": 0}"), HasSubstr("nothing to send"));
  EXPECT_THAT(message("{\"prompt\":\"a\",\"timestamp\":-1}"),
              HasSubstr("timestamp is -1"));
  EXPECT_THAT(message("\n"), HasSubstr("no line"));
}

TEST(Dataset, ATraceBeginsAtZeroAndMayRunFaster) {
  Dataset dataset(3);
  dataset[0].due = 1000ms;
  dataset[1].due = 1000ms;
  dataset[2].due = 3000ms;
  const auto trace = TraceOf(dataset, 4);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(*trace, (std::vector<std::chrono::nanoseconds>{0ms, 0ms, 500ms}));
  dataset[1].due = 500ms;
  EXPECT_THAT(std::string(TraceOf(dataset, 1).status().message()),
              HasSubstr("sort"));
  dataset[1].due = std::chrono::nanoseconds(1'000'000'000'000'000'000);
  dataset[2].due = dataset[1].due;
  EXPECT_THAT(std::string(TraceOf(dataset, 1e-4).status().message()),
              HasSubstr("raise --trace-speed"));
  EXPECT_TRUE(TraceOf(dataset, 1e6).ok());
  dataset[1].due.reset();
  EXPECT_THAT(std::string(TraceOf(dataset, 1).status().message()),
              HasSubstr("entry 2"));
}

TEST(Requests, LaterTurnsCarryTheRepliesBefore) {
  Options options;
  options.streaming = true;
  const auto requests = MakeTextRequests(
      options, "m",
      *ParseJsonl(
          R"({"turns": ["one", "two"], "system": "s", "max_tokens": 4})"));
  std::string scratch;
  const Json first = BodyOf(requests->Bytes(0, 0, {}, scratch));
  EXPECT_EQ(first["model"], "m");
  EXPECT_EQ(first["messages"].size(), 2u);
  EXPECT_EQ(first["stream_options"]["include_usage"], true);
  EXPECT_EQ(first["max_tokens"], 4);
  EXPECT_EQ(first["ignore_eos"], true);
  const Json second = BodyOf(requests->Bytes(0, 1, {"answer"}, scratch));
  ASSERT_EQ(second["messages"].size(), 4u);
  EXPECT_EQ(second["messages"][2]["role"], "assistant");
  EXPECT_EQ(second["messages"][2]["content"], "answer");
  EXPECT_EQ(second["messages"][3]["content"], "two");
}

TEST(Requests, ExtraInputsAndHeadersAreSent) {
  Options options;
  options.endpoint = EndpointType::kCompletions;
  options.url = *ParseUrl("http://h:1/v1", "80");
  options.headers = {{"Authorization", "Bearer k"}};
  options.extra_inputs = {{"temperature", "0"}, {"user", "\"me\""}};
  const auto requests =
      MakeTextRequests(options, "m", *ParseJsonl(R"({"prompt": "p"})"));
  std::string scratch;
  const std::string bytes(requests->Bytes(0, 0, {}, scratch));
  EXPECT_THAT(bytes,
              HasSubstr("POST /v1/completions HTTP/1.1\r\nHost: h:1\r\n"));
  EXPECT_THAT(bytes, HasSubstr("\r\nAuthorization: Bearer k\r\n"));
  const Json body = BodyOf(bytes);
  EXPECT_EQ(body["prompt"], "p");
  EXPECT_EQ(body["temperature"], 0);
  EXPECT_EQ(body["user"], "me");
  EXPECT_FALSE(body.contains("max_tokens"));
  EXPECT_FALSE(body.contains("stream"));
}

TEST(SyntheticText, HasTheWantedLengthAndSpread) {
  SyntheticText text({"a", "b"}, 1);
  const std::string made = text.Make(5);
  EXPECT_EQ(made.size(), 9u);
  EXPECT_EQ(std::count(made.begin(), made.end(), ' '), 4);
  EXPECT_EQ(text.Draw({.mean = 7}), 7);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto drawn = static_cast<double>(text.Draw({100, 20}));
    sum += drawn;
    squares += drawn * drawn;
  }
  const double mean = sum / 10'000;
  EXPECT_NEAR(mean, 100, 1);
  EXPECT_NEAR(std::sqrt(squares / 10'000 - mean * mean), 20, 1);
  EXPECT_GE(text.Draw({1, 100}), 1);
}

}  // namespace
}  // namespace millrace::loadtest
