// Quantised graphs on the GPU that the CPU emulates: the bytes of the engine on
// cores where the arithmetic is the same, and near what ONNX Runtime gave.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "models/graph/op.h"
#include "tests/cuda_emulation/cuda_graph_fixture.h"
#include "tests/unit/models/graph/quant_maker.h"
#include "tests/unit/models/graph/tiny_model_arrays.h"

namespace millrace::models::graph {
namespace {

class ByteGraphs : public CudaGraph {
 protected:
  // Runs the graph on both; the results are the same bits, but for one in
  // `off_by_step` of 200 which may differ by a step (0: none may). No operator
  // is left to the cores. Returns the device's plan.
  static std::string ExpectCoresBytes(QuantMaker& m, ValueId y,
                                      double off_by_step = 0) {
    m.graph.AddOutput("y", y);
    const auto on_device = Make(m.graph);
    const auto got = on_device->Run(m.Inputs());
    EXPECT_TRUE(got.ok()) << got.status().message();
    const auto want = (*CreateInstance(m.graph.Copy(), {}))->Run(m.Inputs());
    EXPECT_TRUE(want.ok()) << want.status().message();
    if (!got.ok() || !want.ok()) return "";
    const int64_t n = (*want)[0].num_elements();
    EXPECT_EQ((*got)[0].shape(), (*want)[0].shape());
    int64_t off = 0;
    bool varies = false;
    for (int64_t i = 0; i < n; ++i) {
      const float g = (*got)[0].data<float>()[i];
      const float w = (*want)[0].data<float>()[i];
      off += g != w;
      EXPECT_LE(std::abs(g - w), off_by_step * 1.001) << i;
      varies = varies || w != (*want)[0].data<float>()[0];
    }
    EXPECT_LE(off, off_by_step == 0 ? 0 : 1 + n / 200);
    EXPECT_TRUE(varies) << "a constant result shows nothing";
    const std::string plan = on_device->PlanText();
    EXPECT_EQ(on_device->device_counts().on_cpu, 0) << plan;
    // Captured, the second time.
    const auto again = on_device->Run(m.Inputs());
    const auto captured = on_device->Run(m.Inputs());
    EXPECT_TRUE(again.ok() && captured.ok());
    EXPECT_TRUE(SameBytes(*got, *captured));
    return plan;
  }
};

TEST_F(ByteGraphs, ConvolutionsFunctionsAndPools) {
  for (const DType bytes : {DType::kU8, DType::kI8}) {
    QuantMaker m(bytes);
    ValueId x = m.Rounded(m.Input({2, 12, 11, 9}), 0.03f, 120);
    x = m.Node("Conv", {x, m.Bytes({32, 12, 3, 3}, 0), m.Weight({32})},
               {{"pads", Ints64{1, 1, 1, 1}}});
    x = m.Rounded(x, 0.05f, 131);
    x = m.Rounded(m.Node("Relu", {x}), 0.04f, 0);
    x = m.Node("MaxPool", {x},
               {{"kernel_shape", Ints64{3, 3}}, {"strides", Ints64{2, 2}}});
    x = m.Rounded(x, 0.04f, 0);
    x = m.Node("Conv", {x, m.Bytes({20, 32, 3, 3}, 0), m.Weight({20})},
               {{"pads", Ints64{1, 1, 1, 1}}});
    const std::string plan = ExpectCoresBytes(m, m.Rounded(x, 0.05f, 128));
    EXPECT_EQ(Count(plan, "cuda:0  Int8 Conv"), 2) << plan;
    EXPECT_NE(plan.find("lookup"), std::string::npos) << plan;
    EXPECT_NE(plan.find("cuda:0  Int8 MaxPool"), std::string::npos) << plan;
  }
}

TEST_F(ByteGraphs, ResidualsInBytesAndInFloats) {
  for (const bool floats : {false, true}) {
    QuantMaker m;
    const ValueId x = m.Rounded(m.Input({1, 16, 8, 8}), 0.03f, 128);
    ValueId y = m.Node("Conv", {x, m.Bytes({16, 16, 1, 1}, 0)});
    y = m.Node("Add", {floats ? y : m.Rounded(y, 0.02f, 100),
                       floats ? m.Input({1, 16, 8, 8}) : x});
    y = m.Rounded(m.Node("Relu", {y}), 0.03f, 3);
    const std::string plan = ExpectCoresBytes(m, y);
    EXPECT_NE(plan.find(floats ? "+residual(f32) relu" : "q +residual relu"),
              std::string::npos)
        << plan;
  }
}

TEST_F(ByteGraphs, LinearLayersOfEitherLayout) {
  for (const bool kn : {false, true}) {
    QuantMaker m;
    const ValueId x = m.Rounded(m.Input({7, 48}), 0.03f, 140);
    const ValueId w = kn ? m.Bytes({48, 40}, 1) : m.Bytes({40, 48}, 0);
    ValueId y =
        m.Node("Gemm", {x, w, m.Weight({40})}, {{"transB", int64_t{!kn}}});
    y = m.Rounded(y, 0.05f, 120);
    y = m.Node("MatMul", {y, m.Bytes({40, 9}, 1)});
    const std::string plan = ExpectCoresBytes(m, y);
    EXPECT_NE(plan.find("cuda:0  Int8 Linear 7 x 48 -> 40"), std::string::npos)
        << plan;
    EXPECT_NE(plan.find("40 -> 9 -> f32"), std::string::npos) << plan;
  }
}

// Gelu is not exact: a byte may be the next one.
TEST_F(ByteGraphs, WhatFollowsARoundedProduct) {
  QuantMaker m;
  const ValueId x = m.Rounded(m.Input({7, 30}), 0.03f, 140);
  ValueId y = m.Rounded(m.Node("MatMul", {x, m.Bytes({30, 40}, 1)}), 0.04f, 90);
  y = m.Node("Mul", {y, m.Number(0.5f)});
  y = m.Node("Gelu", {m.Node("Add", {m.Weight({40}), y})});
  y = m.Rounded(y, 0.02f, 10);
  const std::string plan = ExpectCoresBytes(m, y, 0.02);
  EXPECT_NE(plan.find("30 -> 40 q +bias gelu"), std::string::npos) << plan;
}

TEST_F(ByteGraphs, GroupsDepthwiseAndMeans) {
  QuantMaker m;
  ValueId x = m.Rounded(m.Input({2, 24, 9, 9}), 0.03f, 128);
  x = m.Node("Conv", {x, m.Bytes({24, 1, 3, 3}, 0), m.Weight({24})},
             {{"group", int64_t{24}}, {"pads", Ints64{1, 1, 1, 1}}});
  x = m.Rounded(x, 0.03f, 128);
  x = m.Node("Conv", {x, m.Bytes({36, 8, 1, 1}, 0)}, {{"group", int64_t{3}}});
  x = m.Rounded(m.Node("HardSwish", {x}), 0.03f, 20);
  x = m.Rounded(m.Node("GlobalAveragePool", {x}), 0.01f, 20);
  const std::string plan = ExpectCoresBytes(m, x);
  for (const char* step : {"Int8 Depthwise", "3 groups", "Int8 Mean"}) {
    EXPECT_NE(plan.find(step), std::string::npos) << plan;
  }
}

// 64 KiB as bytes, which is what a quantised layer keeps of them on the device;
// 256 KiB as floats, which is what a layer reads whose input is not quantised.
TEST_F(ByteGraphs, WeightsAreCountedAsWhatTheDeviceKeeps) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU is as small as told";
  const auto status_with = [](int64_t free, bool quantised) {
    QuantMaker m;
    ValueId x = m.Input({7, 256});
    if (quantised) x = m.Rounded(x, 0.03f, 140);
    m.graph.AddOutput("y", m.Node("MatMul", {x, m.Bytes({256, 256}, 1)}));
    const int64_t used = (int64_t{1} << 30) - FreeBytes();
    SetBytes(used + free);
    const Status made = CreateInstance(m.graph.Copy(), OnDevice()).status();
    SetBytes(int64_t{1} << 30);
    return made;
  };
  EXPECT_TRUE(status_with(70'000, true).ok());
  EXPECT_NE(status_with(65'000, true).message().find("weights take 65"),
            std::string_view::npos);
  EXPECT_TRUE(status_with(270'000, false).ok());
  EXPECT_NE(status_with(260'000, false).message().find("weights take 262"),
            std::string_view::npos);
}

TEST_F(ByteGraphs, TransposedConvolutions) {
  for (const bool pads : {false, true}) {
    QuantMaker m;
    const Shape kernel = pads ? Shape{16, 9, 4, 4} : Shape{16, 40, 2, 2};
    const int64_t outputs = kernel[1];
    const ValueId w = m.Bytes(kernel, 1);
    const ValueId x = m.Rounded(m.Input({2, 16, 5, 7}), 0.03f, 120);
    Attrs attrs = {{"strides", Ints64{2, 2}}};
    if (pads) attrs.Set("pads", Ints64{1, 1, 1, 1});
    ValueId y = m.Node("ConvTranspose", {x, w, m.Weight({outputs})}, attrs);
    y = m.Node("Relu", {m.Rounded(y, 0.05f, 131)});
    ValueId z = m.Node("ConvTranspose", {x, w}, attrs);
    z = m.Node("Add", {m.Rounded(z, 0.05f, 120), m.Rounded(y, 0.0613f, 7)});
    const std::string plan = ExpectCoresBytes(m, m.Rounded(z, 0.0937f, 99));
    EXPECT_EQ(Count(plan, "Int8 ConvTranspose"), 2) << plan;
  }
}

// The engine on cores finds a product and a sum for each channel first.
TEST_F(ByteGraphs, ElementwiseOperatorsConcatAndLookup) {
  QuantMaker m;
  const ValueId x = m.Rounded(m.Input({1, 8, 6, 6}), 0.03f, 128);
  const ValueId gate = m.Rounded(m.Input({1, 8, 1, 1}), 0.02f, 110);
  const ValueId y = m.Rounded(m.Node("Mul", {x, gate}), 0.05f, 99);
  const ValueId z = m.Node("Concat", {x, y}, {{"axis", int64_t{1}}});
  const std::string plan = ExpectCoresBytes(m, m.Rounded(z, 0.04f, 128), 0.04);
  EXPECT_NE(plan.find("cuda:0  Int8 Pointwise"), std::string::npos) << plan;
}

TEST_F(ByteGraphs, LayersOfMeasuredBytes) {
  for (const bool conv : {false, true}) {
    QuantMaker m;
    const ValueId x = m.Input(conv ? Shape{2, 16, 7, 9} : Shape{2, 9, 16});
    const ValueId bytes = m.Node("DynamicQuantizeLinear", {x});
    const ValueId scale = m.graph.AddValue("scale");
    const ValueId zero = m.graph.AddValue("zero");
    m.graph.nodes.back().outputs = {bytes, scale, zero};
    const Shape shape = conv ? Shape{10, 16, 3, 3} : Shape{16, 10};
    Tensor w = Tensor::Make(DType::kU8, shape);
    for (int64_t i = 0; i < w.num_elements(); ++i) {
      w.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37 % 251);
    }
    const ValueId product = m.Node(
        conv ? "ConvInteger" : "MatMulInteger",
        {bytes, m.graph.AddConstant("w", std::move(w)), zero, m.Zero(125)},
        conv ? Attrs{{"pads", Ints64{1, 1, 1, 1}}} : Attrs{});
    const ValueId floats = m.Node("Cast", {product}, {{"to", int64_t{1}}});
    const ValueId scales = m.Node("Mul", {scale, m.Number(0.01f)});
    const ValueId y = m.Node("Mul", {floats, scales});
    const ValueId bias = m.Weight(conv ? Shape{1, 10, 1, 1} : Shape{10});
    const std::string plan = ExpectCoresBytes(m, m.Node("Add", {y, bias}));
    EXPECT_NE(plan.find("measured +bias -> f32"), std::string::npos) << plan;
  }
}

// One tensor of bytes stands for several weights, with zeros of its own each.
TEST_F(ByteGraphs, LayersMayShareTheirBytes) {
  QuantMaker m;
  Tensor bytes = Tensor::Make(DType::kI8, {6, 4, 1, 1});
  for (int i = 0; i < 24; ++i) {
    bytes.data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 200 - 100);
  }
  const ValueId w = m.graph.AddConstant("w", std::move(bytes));
  ValueId sum = kNoValue;
  for (const int8_t zero : {int8_t{0}, int8_t{20}}) {
    const ValueId x = m.Rounded(m.Input({1, 4, 5, 5}), 0.02f, 120);
    Tensor zeros = Tensor::Make(DType::kI8, {});
    *zeros.data<int8_t>() = zero;
    const ValueId weight = m.Node(
        "DequantizeLinear",
        {w, m.Number(0.01f), m.graph.AddConstant("z", std::move(zeros))});
    const ValueId y = m.Rounded(m.Node("Conv", {x, weight}), 0.05f, 128);
    sum = sum == kNoValue ? y : m.Node("Add", {sum, y});
  }
  ExpectCoresBytes(m, sum);
}

// ---- whole networks ----
// At least so many steps on bytes run on the device, and so many operators on
// the cores at most.
struct Network {
  std::string file;
  int least_int8;
  int64_t most_on_cpu;
  bool cores_bytes;  // all of its functions are exact
};
class QuantizedOnDevice : public CudaGraph,
                          public testing::WithParamInterface<Network> {};

// A layer's byte may be the next one where a sum falls on the other side of a
// tie, and so do results, by a few of their steps: the engine on cores is off
// by as much.
TEST_P(QuantizedOnDevice, GivesWhatOnnxRuntimeGave) {
  const Network& network = GetParam();
  const std::string stem =
      std::string("tests/data/graph_quantized/") + network.file;
  const Graph graph = Import(stem + ".onnx");
  const auto context = Make(graph);
  const auto on_cores = *CreateInstance(graph.Copy(), {});
  int64_t runs = 0;
  for (const char* tag : {"b1", "b2", "b3"}) {
    SCOPED_TRACE(tag);
    const Arrays arrays = ReadArrays(stem + "." + tag + ".npz");
    const auto got = context->Run(arrays.inputs);
    const auto want = on_cores->Run(arrays.inputs);
    ASSERT_TRUE(got.ok() && want.ok()) << got.status().ToString();
    ASSERT_EQ(got->size(), arrays.outputs.size());
    for (size_t i = 0; i < got->size(); ++i) {
      ExpectClose((*got)[i], arrays.outputs[i], 4.0 / 127);
    }
    if (network.cores_bytes) {
      EXPECT_TRUE(SameBytes(*got, *want));
    }
    ++runs;
  }
  const std::string plan = context->PlanText();
  EXPECT_GE(Count(plan, "cuda:0  Int8 "), network.least_int8) << plan;
  EXPECT_LE(context->device_counts().on_cpu, network.most_on_cpu) << plan;
  EXPECT_EQ(runs, 3);
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantizedOnDevice,
    testing::Values(Network{"resnet50.qdq", 10, 0, true},
                    Network{"resnet50.qlinear", 10, 1, true},
                    Network{"mobilenet_v3_large.qdq", 15, 0, false},
                    Network{"bert_base.qdq", 12, 13, false},
                    Network{"bert_base.dynamic", 12, 5, false}),
    [](const auto& test) {
      std::string name = test.param.file;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

}  // namespace
}  // namespace millrace::models::graph
