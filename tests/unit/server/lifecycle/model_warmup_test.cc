// model_warmup and reshape of a config.pbtxt, and the tensors of samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/reshape_settings.h"
#include "config/sequence_settings.h"
#include "config/warmup_settings.h"
#include "models/tensor/strings.h"
#include "server/lifecycle/model_config.h"
#include "server/lifecycle/warmup_samples.h"

namespace millrace::server {
namespace {

namespace fs = std::filesystem;

using models::DType;
using models::TensorSpec;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StatusOr<config::PipelineSettings> PipelineOf(const std::string& text) {
  const auto config = ModelConfig::FromText(text, "config.pbtxt");
  if (!config.ok()) return config.status();
  return config->Pipeline();
}

std::string Refused(const std::string& text, const char* field) {
  const auto pipeline = PipelineOf(text);
  EXPECT_EQ(pipeline.status().code(), StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(pipeline.status().field(), field);
  return std::string(pipeline.status().message());
}

// A model with one sample, of the given fields.
std::string WithSample(const std::string& sample, int max_batch_size = 4) {
  return "max_batch_size: " + std::to_string(max_batch_size) +
         " model_warmup [ { name: \"w\" " + sample + " } ]";
}

std::string X(const std::string& fields) {
  return "inputs { key: \"x\" value { " + fields + " } }";
}

const std::vector<TensorSpec> kInputs = {{.name = "x",
                                          .dtype = DType::kF32,
                                          .dims = {-1, 3},
                                          .text = "FP32 [batch, 3]"},
                                         {.name = "ids",
                                          .dtype = DType::kI64,
                                          .dims = {-1, 2},
                                          .text = "INT64 [batch, 2]"},
                                         {.name = "words",
                                          .dtype = models::kString,
                                          .dims = {-1, 1},
                                          .text = "BYTES [batch, 1]"}};

class SampleTest : public testing::Test {
 protected:
  SampleTest()
      : folder_(fs::path(testing::TempDir()) /
                ("millrace_warmup_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~SampleTest() override { fs::remove_all(folder_); }

  void Put(const std::string& name, std::string_view bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

  StatusOr<std::vector<handlers::NamedTensor>> Tensors(
      const std::string& text,
      const std::vector<models::TensorSpec>& inputs = kInputs) {
    const auto pipeline = PipelineOf(text);
    if (!pipeline.ok()) return pipeline.status();
    config::WarmupSettings settings = *pipeline->warmup;
    settings.folder = folder_.string();
    return SampleTensors(settings, settings.samples.at(0), inputs);
  }

  std::string NotMade(const std::string& text) {
    const auto tensors = Tensors(text);
    EXPECT_EQ(tensors.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(tensors.status().field(), "model_warmup");
    return std::string(tensors.status().message());
  }

  const fs::path folder_;
};

TEST(ModelWarmup, SamplesBecomeSettings) {
  const auto pipeline = PipelineOf(R"(
      max_batch_size: 8
      model_warmup [
        { name: "a" batch_size: 4 count: 3
          inputs { key: "y" value { data_type: TYPE_STRING dims: [ 1 ]
                                    random_data: false } }
          inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 3 ]
                                    zero_data: true } } },
        { name: "left out" },
        { name: "b" batch_size: 1
          inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 3 ]
                                    input_data_file: "x.bin" } } } ])");
  ASSERT_TRUE(pipeline.ok()) << pipeline.status().ToString();
  const auto& samples = pipeline->warmup->samples;
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].name, "a");
  EXPECT_EQ(samples[0].rows, 4);
  EXPECT_EQ(samples[0].count, 3);
  ASSERT_EQ(samples[0].inputs.size(), 2u);
  EXPECT_EQ(samples[0].inputs[0].name, "x");
  EXPECT_EQ(samples[0].inputs[0].datatype, "FP32");
  EXPECT_THAT(samples[0].inputs[0].dims, ElementsAre(3));
  EXPECT_EQ(samples[0].inputs[1].datatype, "BYTES");
  EXPECT_EQ(samples[0].inputs[1].data, config::WarmupInput::Data::kRandom);
  EXPECT_EQ(samples[1].count, 1);
  EXPECT_EQ(samples[1].inputs[0].file, "x.bin");
  EXPECT_EQ(PipelineOf("max_batch_size: 8")->warmup, nullptr);
  EXPECT_EQ(PipelineOf("model_warmup [ { name: \"w\" } ]")->warmup, nullptr);
}

TEST(ModelWarmup, WhatCannotBeIsNamed) {
  const std::string fits = "data_type: TYPE_FP32 dims: [ 3 ] zero_data: true";
  const auto refused = [](const std::string& text) {
    return Refused(text, "model_warmup");
  };
  EXPECT_EQ(refused(WithSample("batch_size: 5 " + X(fits))),
            "model_warmup sample 'w' has batch_size 5 but max_batch_size is 4");
  EXPECT_THAT(refused(WithSample("batch_size: 2 " + X(fits), 0)),
              HasSubstr("has no max_batch_size"));
  EXPECT_EQ(
      refused(WithSample("batch_size: 1 " + X("dims: [ 3 ] zero_data: true"))),
      "model_warmup sample 'w', input 'x', has no data_type");
  EXPECT_EQ(refused(WithSample("batch_size: 1 " +
                               X("data_type: TYPE_FP32 dims: [ 3 ]"))),
            "model_warmup sample 'w', input 'x', has none of zero_data, "
            "random_data and input_data_file");
  EXPECT_THAT(refused(WithSample(
                  "batch_size: 1 " +
                  X("data_type: TYPE_FP32 dims: [ -1 ] zero_data: true"))),
              HasSubstr("has a size of -1 in dims"));
  EXPECT_THAT(refused(WithSample("batch_size: 1 count: 4000000000 " + X(fits))),
              HasSubstr("makes them 4000000000 runs, but a load computes at "
                        "most 100000"));
  EXPECT_THAT(
      refused("platform: \"ensemble\" ensemble_scheduling { step { model_name: "
              "\"a\" model_version: -1 } } model_warmup [ { batch_size: 1 } ]"),
      HasSubstr("is set for an ensemble"));
}

TEST(ModelWarmup, AYamlHasTheSameWithWholeShapes) {
  ModelConfig config;
  const auto warmup = config.AddWarmup(
      R"([{"name":"w","count":"2","inputs":{"x":{"data_type":"TYPE_FP32",
          "dims":["2","3"],"zero_data":"true"}}}])");
  ASSERT_TRUE(warmup.ok()) << warmup.status().ToString();
  EXPECT_EQ((*warmup)->samples[0].rows, 0);
  EXPECT_EQ((*warmup)->samples[0].count, 2);
  EXPECT_THAT((*warmup)->samples[0].inputs[0].dims, ElementsAre(2, 3));
  EXPECT_THAT(config.ToJson(), HasSubstr("\"model_warmup\":[{"));
  const auto unknown = ModelConfig().AddWarmup(R"([{"nam":"w"}])");
  EXPECT_EQ(unknown.status().field(), "model_warmup");
}

TEST_F(SampleTest, ARowStandsBatchSizeTimes) {
  Put("x.bin", std::string_view("\0\0\x80?\0\0\0@\0\0@@", 12));
  Put("words.bin", std::string_view("\2\0\0\0hi", 6));
  const auto tensors = Tensors(WithSample(
      "batch_size: 2 " +
      X("data_type: TYPE_FP32 dims: [ 3 ] input_data_file: \"x.bin\"") +
      " inputs { key: \"ids\" value { data_type: TYPE_INT64 dims: [ 2 ] "
      "random_data: true } } inputs { key: \"words\" value { data_type: "
      "TYPE_STRING dims: [ 1 ] input_data_file: \"words.bin\" } }"));
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  ASSERT_EQ(tensors->size(), 3u);
  const models::Tensor& ids = (*tensors)[0].tensor;
  EXPECT_EQ(ids.shape(), (models::Shape{2, 2}));
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(ids.data<int64_t>()[i], testing::AnyOf(0, 1));
    EXPECT_EQ(ids.data<int64_t>()[i], ids.data<int64_t>()[i % 2]);
  }
  EXPECT_THAT(models::StringsIn((*tensors)[1].tensor), ElementsAre("hi", "hi"));
  const models::Tensor& x = (*tensors)[2].tensor;
  EXPECT_THAT(std::vector<float>(x.data<float>(), x.data<float>() + 6),
              ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST_F(SampleTest, RandomFloatsAreWithinOneAndTheSameEachTime) {
  const std::string text =
      WithSample("batch_size: 1 " +
                 X("data_type: TYPE_FP32 dims: [ 3 ] random_data: true"));
  const auto once = Tensors(text), again = Tensors(text);
  ASSERT_TRUE(once.ok() && again.ok());
  const float* const values = (*once)[0].tensor.data<float>();
  EXPECT_NE(values[0], values[1]);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(values[i], -1);
    EXPECT_LT(values[i], 1);
    EXPECT_EQ(values[i], (*again)[0].tensor.data<float>()[i]);
  }
}

TEST_F(SampleTest, AModelThatDeclaresNoInputsTakesAny) {
  const auto tensors =
      Tensors(WithSample("batch_size: 2 " +
                         X("data_type: TYPE_FP32 dims: [ 4 ] zero_data: true")),
              {});
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  EXPECT_EQ((*tensors)[0].tensor.shape(), (models::Shape{2, 4}));
}

TEST_F(SampleTest, WhatDoesNotFitTheModelIsNamed) {
  const std::string zero = " zero_data: true";
  EXPECT_EQ(NotMade(WithSample("batch_size: 1 inputs { key: \"z\" value { "
                               "data_type: TYPE_FP32 dims: [ 3 ]" +
                               zero + " } }")),
            "model_warmup sample 'w', input 'z' is not in the model, which has "
            "'x', 'ids', 'words'");
  EXPECT_EQ(NotMade(WithSample("batch_size: 2 " +
                               X("data_type: TYPE_FP32 dims: [ 4 ]" + zero))),
            "model_warmup sample 'w', input 'x' is FP32 [2, 4] with its batch "
            "but the model takes FP32 [batch, 3]");
  EXPECT_THAT(
      NotMade(WithSample("batch_size: 1 " +
                         X("data_type: TYPE_INT32 dims: [ 3 ]" + zero))),
      HasSubstr("is INT32 [1, 3] with its batch"));
  EXPECT_THAT(NotMade(WithSample(
                  "batch_size: 1 " +
                  X("data_type: TYPE_FP32 dims: [ 1000000, 1000000 ]" + zero))),
              HasSubstr("is too large"));
}

TEST_F(SampleTest, FilesThatDoNotFitAreNamed) {
  const auto with = [](const std::string& file) {
    return WithSample("batch_size: 1 " +
                      X("data_type: TYPE_FP32 dims: [ 3 ] input_data_file: \"" +
                        file + "\""));
  };
  EXPECT_THAT(NotMade(with("none.bin")),
              HasSubstr("none.bin, which cannot be read (No such file"));
  Put("short.bin", "abcd");
  EXPECT_EQ(NotMade(with("short.bin")),
            "model_warmup sample 'w', input 'x' has 4 bytes but FP32 [3] takes "
            "12 (of the file short.bin)");
  for (const char* outside : {"../short.bin", "/etc/hostname", "a/../../b"}) {
    EXPECT_THAT(NotMade(with(outside)),
                HasSubstr("must name a file within the folder"));
  }
  fs::create_directories(folder_ / "sub");
  Put("sub/x.bin", std::string(12, '\0'));
  EXPECT_TRUE(Tensors(with("sub/x.bin")).ok());
}

TEST_F(SampleTest, AGraphGetsItsInputsInOrderAndSequencesGetZeros) {
  auto pipeline = *PipelineOf(
      WithSample("batch_size: 3 " + X("data_type: TYPE_FP32 dims: [ 3 ]"
                                      " zero_data: true")));
  EXPECT_THAT(
      std::string(
          SamplesFor("m", pipeline, kInputs, nullptr).status().message()),
      HasSubstr("model_warmup sample 'w': input 'ids' is missing"));
  config::SequenceSettings sequences;
  sequences.controls.push_back({.input = "words", .datatype = ""});
  sequences.states.push_back({.input = "ids", .output = "y"});
  pipeline.sequences =
      std::make_shared<const config::SequenceSettings>(sequences);
  const auto samples = SamplesFor("m", pipeline, kInputs, nullptr);
  ASSERT_TRUE(samples.ok()) << samples.status().ToString();
  const scheduler::WarmUpSample& sample = (*samples)->at(0);
  EXPECT_EQ(sample.name, "w");
  ASSERT_EQ(sample.inputs.size(), 3u);
  EXPECT_EQ(sample.inputs[0].shape(), (models::Shape{3, 3}));
  EXPECT_EQ(sample.inputs[1].shape(), (models::Shape{3, 2}));
  EXPECT_THAT(models::StringsIn(sample.inputs[2]), Each(""));
}

TEST(ModelReshape, BecomesSettings) {
  const auto pipeline = PipelineOf(R"(
      max_batch_size: 8
      input [ { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ]
                reshape { shape: [ 4 ] } },
              { name: "ids" data_type: TYPE_INT64 dims: [ 2 ] } ]
      output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ]
                 reshape { shape: [ ] } } ])");
  ASSERT_TRUE(pipeline.ok()) << pipeline.status().ToString();
  const config::ReshapeSettings& reshape = *pipeline->reshape;
  EXPECT_TRUE(reshape.has_batch);
  ASSERT_EQ(reshape.inputs.size(), 1u);
  EXPECT_THAT(reshape.inputs[0].dims, ElementsAre(2, 2));
  EXPECT_THAT(reshape.inputs[0].shape, ElementsAre(4));
  ASSERT_EQ(reshape.outputs.size(), 1u);
  EXPECT_TRUE(reshape.outputs[0].shape.empty());
  EXPECT_EQ(PipelineOf("max_batch_size: 8")->reshape, nullptr);
  EXPECT_THAT(Refused(R"(platform: "ensemble"
                 input [ { name: "x" dims: [ 1 ] reshape { shape: [ ] } } ]
                 ensemble_scheduling { step { model_name: "a" } })",
                      "reshape"),
              HasSubstr("is set for an ensemble"));
}

TEST(ModelReshape, IsToldAsItWasWritten) {
  const auto config = ModelConfig::FromText(
      R"(max_batch_size: 8 input [ { name: "x" data_type: TYPE_FP32
         dims: [ 1 ] reshape { shape: [ ] } } ])",
      "config.pbtxt");
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->ToJson(), HasSubstr("\"reshape\":{\"shape\":[]}"));
  const auto again = ModelConfig::FromJson(config->ToJson());
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->ToJson(), config->ToJson());
}

}  // namespace
}  // namespace millrace::server
