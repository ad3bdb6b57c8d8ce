#include "models/graph/onnx/lifted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/interpreter.h"
#include "tests/unit/models/graph/onnx_model.h"

namespace millrace::models::graph {
namespace {

using testing::ElementsAre;

constexpr int64_t kLeast = 64;

void Raw(onnx::TensorProto* tensor, const std::vector<float>& values) {
  tensor->clear_float_data();
  tensor->set_raw_data(values.data(), values.size() * 4);
}

// y = x [1, 8] times w [8, 4], plus a small b [4].
OnnxModel TwoWeights() {
  OnnxModel model;
  model.Input("x", {1, 8});
  std::vector<float> w(32);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i);
  Raw(model.Floats("b", {4}, {}), {1, 2, 3, 4});
  Raw(model.Floats("w", {8, 4}, {}), w);
  model.Node("MatMul", {"x", "w"}, {"m"});
  model.Node("Add", {"m", "b"}, {"y"});
  model.Output("y");
  return model;
}

std::string Text(LiftedModel::Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Lifted, LargeRawDataStayAndTheRestIsParsedAsBefore) {
  OnnxModel model = TwoWeights();
  const std::string bytes = model.proto().SerializeAsString();
  const LiftedModel lifted =
      LiftInitializers(std::as_bytes(std::span(bytes)), kLeast);
  onnx::ModelProto parsed;
  ASSERT_TRUE(Parse(lifted, &parsed));
  EXPECT_FALSE(lifted.RawOf(0).has_value());
  ASSERT_TRUE(lifted.RawOf(1).has_value());
  EXPECT_FALSE(parsed.graph().initializer(1).has_raw_data());
  parsed.mutable_graph()->mutable_initializer(1)->set_raw_data(
      Text(*lifted.RawOf(1)));
  EXPECT_EQ(parsed.SerializeAsString(), bytes);
}

TEST(Lifted, ATensorThatHasRawDataTwiceIsLeftToTheParser) {
  OnnxModel model = TwoWeights();
  const std::string tensor = model.graph()->initializer(1).SerializeAsString();
  model.graph()->mutable_initializer()->RemoveLast();
  // Fields of one message that are written twice are merged.
  const std::string twice = tensor + tensor;
  ASSERT_LT(twice.size(), size_t{1} << 14);
  const std::string field = {'\x2a',
                             static_cast<char>(twice.size() % 128 + 128),
                             static_cast<char>(twice.size() / 128)};
  std::string graph = model.graph()->SerializeAsString() + field + twice;
  model.proto().clear_graph();
  const std::string bytes =
      model.proto().SerializeAsString() + '\x3a' +
      std::string{static_cast<char>(graph.size() % 128 + 128),
                  static_cast<char>(graph.size() / 128)} +
      graph;
  const LiftedModel lifted =
      LiftInitializers(std::as_bytes(std::span(bytes)), kLeast);
  EXPECT_FALSE(lifted.RawOf(1).has_value());
  onnx::ModelProto parsed;
  ASSERT_TRUE(Parse(lifted, &parsed));
  EXPECT_EQ(parsed.graph().initializer(1).raw_data().size(), 128);
}

TEST(Lifted, BytesThatAreNoModelAreHandedOnWhole) {
  const std::string whole = TwoWeights().proto().SerializeAsString();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string bytes = whole.substr(0, size);
    onnx::ModelProto lifted;
    onnx::ModelProto plain;
    const bool ok = Parse(
        LiftInitializers(std::as_bytes(std::span(bytes)), kLeast), &lifted);
    EXPECT_EQ(ok, plain.ParseFromString(bytes)) << size;
  }
}

// In a file at each of four places, of which three are not aligned; by a node
// that packs the weight and by one that reads it.
TEST(Lifted, WeightsAreReadFromTheFileWhereverTheyStand) {
  for (int shift = 0; shift < 4; ++shift) {
    OnnxModel model = TwoWeights();
    model.graph()->set_name(std::string(static_cast<size_t>(shift), 'n'));
    const std::string path =
        testing::TempDir() + "lifted." + std::to_string(::getpid()) + ".onnx";
    std::vector<float> w(8 * 512);
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i / 512);
    auto* weight = model.graph()->mutable_initializer(1);
    weight->set_dims(1, 512);
    Raw(weight, w);
    model.graph()->mutable_node()->RemoveLast();
    model.graph()->mutable_output(0)->set_name("m");
    model.Input("row", {1}, onnx::TensorProto::INT64);
    model.Node("Gather", {"w", "row"}, {"g"});
    model.Output("g");
    std::ofstream(path, std::ios::binary) << model.proto().SerializeAsString();
    ImportLimits limits;
    limits.min_late_bytes = kLeast;
    auto graph = ImportGraph(path, nullptr, limits);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    std::vector<Tensor> inputs;
    inputs.push_back(Tensor::Make(DType::kF32, {1, 8}));
    std::fill_n(inputs[0].data<float>(), 8, 1.0f);
    inputs.push_back(Tensor::Int64s(std::vector<int64_t>{5}));
    const auto plain = Interpret(graph->Copy(), inputs);
    auto context = CreateInstance(*std::move(graph), {});
    ASSERT_TRUE(context.ok()) << context.status().ToString();
    const auto planned = (*context)->Run(inputs);
    for (const auto* got : {&plain, &planned}) {
      ASSERT_TRUE(got->ok()) << got->status().ToString();
      EXPECT_EQ((**got)[0].data<float>()[511], 28);
      EXPECT_EQ((**got)[1].data<float>()[511], 5);
    }
    ::unlink(path.c_str());
  }
}

TEST(Lifted, LiftedWeightsOfTheWrongSizeAreRefused) {
  OnnxModel model = TwoWeights();
  model.graph()->mutable_initializer(1)->set_dims(0, 9);
  const std::string bytes = model.proto().SerializeAsString();
  const auto graph = ImportOnnxBytes(std::as_bytes(std::span(bytes)), "",
                                     nullptr, {.min_late_bytes = kLeast});
  EXPECT_EQ(graph.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(graph.status().message(), testing::HasSubstr("128 bytes"));
}

}  // namespace
}  // namespace millrace::models::graph
