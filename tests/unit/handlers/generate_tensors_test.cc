#include "handlers/generate_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::DType;
using models::Shape;
using models::Tensor;
using ::testing::HasSubstr;

NamedTensor Text(const std::string& name, std::string_view text,
                 const Shape& shape = {1}) {
  const std::vector<std::string_view> all(
      static_cast<size_t>(shape.num_elements()), text);
  return {name, models::MakeStrings(shape, all)};
}

NamedTensor Switch(const std::string& name, bool on) {
  const uint8_t value = on ? 1 : 0;
  return {name, Tensor::From<uint8_t>(DType::kBool, {1}, {&value, 1})};
}

template <typename... Tensors>
std::vector<NamedTensor> Inputs(Tensors... tensors) {
  std::vector<NamedTensor> all;
  (all.push_back(std::move(tensors)), ...);
  return all;
}

void ExpectRefused(const std::vector<NamedTensor>& inputs, const char* field,
                   const char* words) {
  const auto read = ReadGenerateTensors(inputs);
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read.status().field(), field);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(words));
}

TEST(GenerateTensors, PromptAndFieldsOfBothPlaces) {
  const auto read = ReadGenerateTensors(
      Inputs(Text("text_input", "Once", {1, 1}), Switch("stream", true),
             Text("sampling_parameters",
                  R"({"temperature": "0.5", "max_tokens": 7, "stop": ["4"]})"),
             Switch("exclude_input_in_output", false)),
      Json{{"top_k", "3"}, {"max_tokens", 2}});
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->prompt.text, "Once");
  EXPECT_TRUE(read->stream);
  EXPECT_TRUE(read->options.echo);
  EXPECT_EQ(read->options.max_tokens, 7);
  EXPECT_EQ(read->options.top_k, 3);
  EXPECT_EQ(read->options.temperature, 0.5);
  EXPECT_EQ(read->options.stop, std::vector<std::string>{"4"});

  const auto bare = ReadGenerateTensors(Inputs(Text("text_input", "")));
  ASSERT_TRUE(bare.ok());
  EXPECT_FALSE(bare->stream);
  EXPECT_FALSE(bare->options.echo);
}

TEST(GenerateTensors, WhatDoesNotFitIsNamed) {
  ExpectRefused({}, "text_input", "input 'text_input' is missing");
  ExpectRefused(Inputs(Text("text_input", "a", {2})), "text_input",
                "has shape [2] but takes one element");
  ExpectRefused(Inputs(Text("text_input", "a", {})), "text_input",
                "has shape [] but takes one element");
  ExpectRefused(Inputs(Switch("text_input", true)), "text_input",
                "has datatype 'BOOL' but is BYTES");
  ExpectRefused(Inputs(Text("text_input", "a"), Text("text_input", "b")),
                "text_input", "is given twice");
  ExpectRefused(Inputs(Text("prompt", "a")), "prompt",
                "is not one of this model's inputs: text_input, stream, "
                "sampling_parameters, exclude_input_in_output");
  ExpectRefused(Inputs(Text("text_input", "a\xff")), "text_input",
                "is not UTF-8 from byte 1 on");
  ExpectRefused(
      Inputs(Text("text_input", "a"), Text("sampling_parameters", "[1]")),
      "sampling_parameters", "holds JSON that is no object");
  ExpectRefused(Inputs(Text("text_input", "a"),
                       Text("sampling_parameters", R"({"top_p": "much"})")),
                "top_p", "top_p");
}

TEST(GenerateTensors, FieldsOfTheirNamesMeanTheSame) {
  Json fields = {{"sampling_parameters", R"({"max_tokens": "5"})"},
                 {"exclude_input_in_output", false},
                 {"top_k", 2}};
  ASSERT_TRUE(TakeTensorFields(&fields).ok());
  EXPECT_EQ(fields, (Json{{"top_k", 2}, {"max_tokens", 5}, {"echo", true}}));
  fields = {{"sampling_parameters", {{"seed", 1}}},
            {"exclude_input_in_output", true}};
  ASSERT_TRUE(TakeTensorFields(&fields).ok());
  EXPECT_EQ(fields, (Json{{"seed", 1}}));
  fields = {{"sampling_parameters", 3}};
  EXPECT_EQ(TakeTensorFields(&fields).field(), "sampling_parameters");
  fields = {{"exclude_input_in_output", "yes"}};
  EXPECT_EQ(TakeTensorFields(&fields).field(), "exclude_input_in_output");
}

}  // namespace
}  // namespace millrace::handlers
