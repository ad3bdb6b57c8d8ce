// Messages of a session: text that sets or asks, and bytes that become one
// input.
#include "server/http/session_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "server/shared_memory.h"

namespace millrace::server::http {
namespace {

using config::SessionSettings;
using models::DType;
using models::TensorSpec;
using testing::ElementsAre;
using testing::HasSubstr;

const SharedRegions& Regions() {
  static const SharedRegions regions(false, 0);
  return regions;
}

std::vector<TensorSpec> Specs(DType dtype = DType::kF32) {
  return {{.name = "x", .dtype = dtype, .dims = {-1, -1}, .text = "x"},
          {.name = "sr", .dtype = DType::kI64, .dims = {}, .text = "INT64"}};
}

std::string Pcm(const std::vector<int16_t>& samples) {
  return {reinterpret_cast<const char*>(samples.data()), samples.size() * 2};
}

template <typename T>
std::vector<T> Values(const StatusOr<SessionInputs::Binary>& read) {
  EXPECT_TRUE(read.ok()) << read.status().ToString();
  if (!read.ok()) return {};
  const models::Tensor& tensor = read->body.request.inputs.at(0).tensor;
  std::vector<T> values(static_cast<size_t>(tensor.num_bytes()) / sizeof(T));
  std::memcpy(values.data(), tensor.bytes(), values.size() * sizeof(T));
  return values;
}

SessionUpdate UpdateOf(const std::string& text) {
  auto read = ReadSessionText(text, Regions());
  EXPECT_TRUE(read.ok()) << read.status().ToString();
  auto* update = read.ok() ? std::get_if<SessionUpdate>(&*read) : nullptr;
  EXPECT_NE(update, nullptr);
  return update == nullptr ? SessionUpdate() : std::move(*update);
}

std::string Refused(const std::string& text) {
  const auto read = ReadSessionText(text, Regions());
  EXPECT_FALSE(read.ok()) << text;
  return read.ok() ? "" : std::string(read.status().message());
}

TEST(SessionMessage, Pcm16BecomesWhatTheInputHas) {
  const SessionInputs inputs;
  const SessionSettings declared = {.input = "x", .pcm16 = true};
  const std::string bytes = Pcm({0, 16384, -32768, 32767});
  EXPECT_THAT(Values<float>(inputs.Read(bytes, declared, Specs())),
              ElementsAre(0.0f, 0.5f, -1.0f, 32767.0f / 32768));
  EXPECT_THAT(Values<int16_t>(inputs.Read(bytes, declared, Specs(DType::kI16))),
              ElementsAre(0, 16384, -32768, 32767));
  EXPECT_THAT(Values<int32_t>(inputs.Read(bytes, declared, Specs(DType::kI32))),
              ElementsAre(0, 16384, -32768, 32767));
  for (const DType other : {DType::kI64, DType::kU8, DType::kF64}) {
    const auto refused = inputs.Read(bytes, declared, Specs(other));
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("FP32, INT32 or INT16"));
  }
  const auto odd = inputs.Read("abc", declared, Specs());
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(std::string(odd.status().message()), HasSubstr("whole samples"));
}

TEST(SessionMessage, TheContextStandsBeforeTheNextMessage) {
  SessionInputs inputs;
  const SessionSettings declared = {
      .input = "x", .pcm16 = true, .context = 2, .sample_rate = 4};
  const auto specs = Specs(DType::kI16);
  auto first = inputs.Read(Pcm({1, 2, 3}), declared, specs);
  EXPECT_THAT(Values<int16_t>(first), ElementsAre(0, 0, 1, 2, 3));
  EXPECT_DOUBLE_EQ(first->seconds, 0.75);  // of three new samples
  // It was not computed: nothing is kept.
  EXPECT_THAT(Values<int16_t>(inputs.Read(Pcm({9}), declared, specs)),
              ElementsAre(0, 0, 9));
  inputs.Keep(first->context);
  auto second = inputs.Read(Pcm({4}), declared, specs);
  EXPECT_THAT(Values<int16_t>(second), ElementsAre(2, 3, 4));
  inputs.Keep(second->context);
  EXPECT_THAT(Values<int16_t>(inputs.Read(Pcm({5}), declared, specs)),
              ElementsAre(3, 4, 5));
}

TEST(SessionMessage, AnUpdateGoesBeforeWhatTheModelDeclares) {
  SessionInputs inputs;
  const SessionSettings declared = {
      .input = "x", .pcm16 = true, .context = 1, .sample_rate = 16000};
  ASSERT_TRUE(inputs
                  .Update(UpdateOf(R"({"type": "session.update",
                      "encoding": "raw", "context": 0, "sample_rate": 2,
                      "inputs": [{"name": "sr", "datatype": "INT64",
                                  "shape": [], "data": [8000]}]})"),
                          declared, Specs())
                  .ok());
  const float values[] = {1.5f, -2.0f};
  const std::string bytes(reinterpret_cast<const char*>(values), 8);
  const auto read = inputs.Read(bytes, declared, Specs());
  EXPECT_THAT(Values<float>(read), ElementsAre(1.5f, -2.0f));
  EXPECT_DOUBLE_EQ(read->seconds, 1);
  handlers::TensorRequest request;
  inputs.AddTo(request);
  ASSERT_EQ(request.inputs.size(), 1u);
  EXPECT_EQ(request.inputs[0].name, "sr");
  // The next one says nothing of them: they are the model's again.
  ASSERT_TRUE(
      inputs
          .Update(UpdateOf(R"({"type": "session.update"})"), declared, Specs())
          .ok());
  EXPECT_THAT(Values<float>(inputs.Read(Pcm({16384}), declared, Specs())),
              ElementsAre(0, 0.5f));
}

TEST(SessionMessage, AWrongUpdateChangesNothing) {
  SessionInputs inputs;
  const SessionSettings declared = {.input = "x"};
  for (const char* text :
       {R"({"type": "session.update", "input": "none"})",
        R"({"type": "session.update", "input": "sr", "encoding": "pcm16"})",
        R"({"type": "session.update", "inputs": [{"name": "none",
            "datatype": "INT64", "shape": [1], "data": [1]}]})"}) {
    EXPECT_FALSE(inputs.Update(UpdateOf(text), declared, Specs()).ok()) << text;
  }
  const float one = 1;
  const std::string bytes(reinterpret_cast<const char*>(&one), 4);
  EXPECT_THAT(Values<float>(inputs.Read(bytes, declared, Specs())),
              ElementsAre(1.0f));
}

TEST(SessionMessage, WhichInputBytesFillMustBeClear) {
  const SessionInputs inputs;
  const auto unclear = inputs.Read("abcd", {}, Specs());
  ASSERT_FALSE(unclear.ok());
  EXPECT_THAT(std::string(unclear.status().message()),
              HasSubstr("'x' and 'sr'"));
  const auto none = inputs.Read("", {.input = "x"}, Specs());
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("no bytes"));
  const auto half = inputs.Read("abc", {.input = "x"}, Specs());
  ASSERT_FALSE(half.ok());
  EXPECT_THAT(std::string(half.status().message()),
              HasSubstr("multiple of 4 bytes but has 3"));
}

TEST(SessionMessage, TextThatIsNoMessageIsRefused) {
  EXPECT_THAT(Refused("hello"), HasSubstr("JSON"));
  EXPECT_THAT(Refused(R"({"type": "dance"})"), HasSubstr("session.update"));
  EXPECT_THAT(Refused(R"({"type": "session.update", "encoding": "mp3"})"),
              HasSubstr("raw or pcm16"));
  EXPECT_THAT(Refused(R"({"type": "session.update", "context": -1})"),
              HasSubstr("context"));
  EXPECT_THAT(Refused(R"({"type": "session.update", "sample_rate": 0})"),
              HasSubstr("sample_rate"));
  std::string zeros = "0";
  for (int i = 1; i < 8193; ++i) zeros += ",0";
  EXPECT_THAT(Refused(R"({"type": "session.update", "inputs": [{"name": "sr",
          "datatype": "INT64", "shape": [8193], "data": [)" +
                      zeros + "]}]}"),
              HasSubstr("keeps at most 65536"));
  const auto end = ReadSessionText(R"({"type": "session.end"})", Regions());
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(std::holds_alternative<SessionEnd>(*end));
}

}  // namespace
}  // namespace millrace::server::http
