// DecodeInfer: what clients send as tensors, and what is refused by name.
#include "server/grpc/text_codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "open_inference_grpc.pb.h"

namespace millrace::server {
namespace {

using inference::ModelInferRequest;
using ::testing::HasSubstr;

std::string Raw(const std::string& text) {
  const uint32_t length = static_cast<uint32_t>(text.size());
  std::string raw(sizeof(length), '\0');
  std::memcpy(raw.data(), &length, sizeof(length));
  return raw + text;
}

ModelInferRequest::InferInputTensor* AddTensor(ModelInferRequest& request,
                                               const char* name,
                                               const char* datatype) {
  auto* input = request.add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  input->add_shape(1);
  return input;
}

ModelInferRequest RawRequest(const std::string& sampling_json = "") {
  ModelInferRequest request;
  AddTensor(request, "text_input", "BYTES");
  request.add_raw_input_contents(Raw("Hello"));
  if (!sampling_json.empty()) {
    AddTensor(request, "sampling_parameters", "BYTES");
    request.add_raw_input_contents(Raw(sampling_json));
  }
  return request;
}

void ExpectRefused(const ModelInferRequest& request, const char* field,
                   const char* words) {
  const StatusOr<InferCall> call = DecodeInfer(request);
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(call.status().field(), field);
  EXPECT_THAT(std::string(call.status().message()), HasSubstr(words));
}

TEST(InferCodec, ReadsRawTensors) {
  ModelInferRequest request = RawRequest(R"({"max_tokens": 7})");
  AddTensor(request, "stream", "BOOL");
  request.add_raw_input_contents(std::string(1, '\1'));
  const auto call = DecodeInfer(request);
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call->prompt.text, "Hello");
  EXPECT_TRUE(call->stream);
  EXPECT_TRUE(call->raw);
  EXPECT_EQ(call->options.max_tokens, 7);
}

TEST(InferCodec, FieldsAreCountedBeforeTheyAreRead) {
  std::string json = "{\"k\": 0";
  ModelInferRequest request = RawRequest();
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "k" + std::to_string(i);
    json += ", \"" + name + "\": 0";
    (*request.mutable_parameters())[name].set_int64_param(0);
  }
  ExpectRefused(RawRequest(json + "}"), "", "1001 fields");
  (*request.mutable_parameters())["k"].set_int64_param(0);
  ExpectRefused(request, "", "1001 fields");
}

TEST(InferCodec, ReadsTypedTensors) {
  ModelInferRequest request;
  AddTensor(request, "text_input", "BYTES")
      ->mutable_contents()
      ->add_bytes_contents("Hi");
  AddTensor(request, "stream", "BOOL")
      ->mutable_contents()
      ->add_bool_contents(false);
  const auto call = DecodeInfer(request);
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call->prompt.text, "Hi");
  EXPECT_FALSE(call->stream);
  EXPECT_FALSE(call->raw);
}

TEST(InferCodec, NumbersMayBeStrings) {
  const auto call = DecodeInfer(RawRequest(
      R"({"temperature": "0.5", "max_tokens": "9", "ignore_eos": "true",
          "stop": "42"})"));
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call->options.temperature, 0.5);
  EXPECT_EQ(call->options.max_tokens, 9);
  EXPECT_TRUE(call->options.ignore_eos);
  // A stop string of digits stays a string.
  EXPECT_EQ(call->options.stop, std::vector<std::string>{"42"});
}

TEST(InferCodec, StringThatIsNoNumberIsRefusedByItsField) {
  ExpectRefused(RawRequest(R"({"max_tokens": "many"})"), "max_tokens", "many");
}

TEST(InferCodec, RequestParametersAreSamplingFieldsAndTheTensorWins) {
  ModelInferRequest request = RawRequest(R"({"max_tokens": 5})");
  auto& parameters = *request.mutable_parameters();
  parameters["max_tokens"].set_int64_param(99);
  parameters["temperature"].set_double_param(0.25);
  parameters["top_k"].set_string_param("3");
  parameters["priority"].set_uint64_param(2);
  const auto call = DecodeInfer(request);
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call->options.max_tokens, 5);
  EXPECT_EQ(call->options.temperature, 0.25);
  EXPECT_EQ(call->options.top_k, 3);
  EXPECT_EQ(call->options.priority, 2);
}

TEST(InferCodec, ProtocolParametersAreNoSamplingFields) {
  ModelInferRequest request = RawRequest();
  auto& parameters = *request.mutable_parameters();
  parameters["triton_enable_empty_final_response"].set_bool_param(true);
  parameters["timeout"].set_int64_param(1500);
  parameters["sequence_id"].set_int64_param(0);
  parameters["triton_something"].set_string_param("x");
  const auto call = DecodeInfer(request);
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_TRUE(call->empty_final_response);
  ASSERT_TRUE(call->timeout.has_value());
  EXPECT_EQ(call->timeout->count(), 1500);
}

TEST(InferCodec, SequenceIsRefused) {
  ModelInferRequest request = RawRequest();
  (*request.mutable_parameters())["sequence_id"].set_int64_param(4);
  ExpectRefused(request, "sequence_id", "4");
}

TEST(InferCodec, ExcludeInputFalseEchoesThePrompt) {
  ModelInferRequest request = RawRequest();
  AddTensor(request, "exclude_input_in_output", "BOOL");
  request.add_raw_input_contents(std::string(1, '\0'));
  const auto call = DecodeInfer(request);
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_TRUE(call->options.echo);
}

TEST(InferCodec, MixedFormsAreRefused) {
  ModelInferRequest request = RawRequest();
  request.mutable_inputs(0)->mutable_contents()->add_bytes_contents("Hello");
  ExpectRefused(request, "text_input", "one way");
}

TEST(InferCodec, RawTensorsAreCounted) {
  ModelInferRequest request = RawRequest();
  request.add_raw_input_contents("x");
  ExpectRefused(request, "raw_input_contents", "1 inputs but 2");
}

TEST(InferCodec, LengthsOfRawElementsAreChecked) {
  ModelInferRequest request = RawRequest();
  for (const std::string& raw :
       {std::string("abc"), std::string("\xff\xff\xff\xff", 4) + "ab",
        Raw("abc") + "d", std::string()}) {
    request.set_raw_input_contents(0, raw);
    ExpectRefused(request, "text_input", "bytes");
  }
}

TEST(InferCodec, BadBoolIsRefused) {
  ModelInferRequest request = RawRequest();
  AddTensor(request, "stream", "BOOL");
  request.add_raw_input_contents(std::string(1, '\2'));
  ExpectRefused(request, "stream", "0 or 1");
}

TEST(InferCodec, WrongNameTypeShapeAndRepetitionAreNamed) {
  ModelInferRequest request = RawRequest();
  request.mutable_inputs(0)->set_datatype("FP32");
  ExpectRefused(request, "text_input", "FP32");

  request = RawRequest();
  request.mutable_inputs(0)->set_shape(0, 2);
  ExpectRefused(request, "text_input", "[2]");

  request = RawRequest();
  request.mutable_inputs(0)->clear_shape();
  ExpectRefused(request, "text_input", "shape []");

  request = RawRequest();
  request.mutable_inputs(0)->set_name("image");
  ExpectRefused(request, "image", "text_input");

  request = RawRequest();
  AddTensor(request, "text_input", "BYTES");
  request.add_raw_input_contents(Raw("again"));
  ExpectRefused(request, "text_input", "twice");

  ExpectRefused(ModelInferRequest(), "text_input", "missing");
}

TEST(InferCodec, TextThatIsNotUtf8IsRefused) {
  ModelInferRequest request = RawRequest();
  request.set_raw_input_contents(0, Raw("ab\xff"));
  ExpectRefused(request, "text_input", "byte 2");
}

TEST(InferCodec, SamplingParametersMustBeAJsonObject) {
  ExpectRefused(RawRequest("{\"max_tokens\": "), "sampling_parameters",
                "sampling_parameters");
  ExpectRefused(RawRequest("[1]"), "sampling_parameters", "no object");
}

TEST(InferCodec, UnknownOutputsAndSharedMemoryAreRefused) {
  ModelInferRequest request = RawRequest();
  request.add_outputs()->set_name("logits");
  ExpectRefused(request, "logits", "text_output");

  request = RawRequest();
  auto* output = request.add_outputs();
  output->set_name("text_output");
  EXPECT_TRUE(DecodeInfer(request).ok());
  (*output->mutable_parameters())["shared_memory_region"].set_string_param("r");
  ExpectRefused(request, "text_output", "shared_memory_region");

  request = RawRequest();
  (*request.mutable_inputs(0)->mutable_parameters())["shared_memory_region"]
      .set_string_param("r");
  ExpectRefused(request, "text_input", "shared memory");
}

// Whatever bytes arrive as a message, they are read within their bounds or
// refused with INVALID_ARGUMENT.
TEST(InferCodec, DamagedMessagesAreReadOrRefused) {
  ModelInferRequest request = RawRequest(R"({"stop": ["a"], "top_k": "3"})");
  (*request.mutable_parameters())["timeout"].set_int64_param(7);
  (*request.mutable_parameters())["top_p"].set_string_param("0.5");
  AddTensor(request, "stream", "BOOL");
  request.add_raw_input_contents(std::string(1, '\1'));
  const std::string whole = request.SerializeAsString();
  google::protobuf::SetLogHandler(nullptr);  // it complains of each
  constexpr uint32_t kSeed = 20261121;
  std::mt19937 rng(kSeed);
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (uint32_t n = 1 + rng() % 4; n > 0; --n) {
      bytes[rng() % bytes.size()] = static_cast<char>(rng());
    }
    ModelInferRequest damaged;
    if (!damaged.ParseFromString(bytes)) continue;
    ++parsed;
    const auto call = DecodeInfer(damaged);
    if (call.ok()) continue;
    ASSERT_EQ(call.status().code(), StatusCode::kInvalidArgument)
        << call.status().ToString() << " at round " << i << ", seed " << kSeed;
  }
  EXPECT_GT(parsed, 1000);  // else this proves nothing
}

TEST(InferCodec, AnswerHasTheFormOfTheRequest) {
  inference::ModelInferResponse raw, typed;
  AddTextOutput("hey", true, &raw);
  EXPECT_EQ(raw.raw_output_contents(0), Raw("hey"));
  EXPECT_FALSE(raw.outputs(0).has_contents());
  AddTextOutput("hey", false, &typed);
  EXPECT_EQ(typed.raw_output_contents_size(), 0);
  EXPECT_EQ(typed.outputs(0).contents().bytes_contents(0), "hey");
}

}  // namespace
}  // namespace millrace::server
