// What a GPU keeps in 16 bits between operators
// (models/graph/cuda/kept_formats.h): most of what networks move, and never
// what needs all its bits.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/cuda_graph_fixture.h"
#include "tests/unit/models/graph/graph_maker.h"
#include "tests/unit/models/graph/tiny_model_arrays.h"

namespace millrace::models::graph {
namespace {

using KeptFormatsOnDevice = CudaGraph;

// The line of a plan that begins so.
std::string LineOf(const std::string& plan, const std::string& begin) {
  const size_t at = plan.find(begin);
  return at == std::string::npos ? ""
                                 : plan.substr(at, plan.find('\n', at) - at);
}

TEST_F(KeptFormatsOnDevice, NetworksMoveMostValuesInSixteenBits) {
  struct Case {
    const char* model;
    double least;  // of the bytes that operators write
  };
  for (const Case& c : {Case{"resnet50", 0.95},
                        {"bert_base", 0.8},
                        {"mobilenet_v3_large", 0.9},
                        {"gpt_small", 0.6}}) {
    const std::string stem = std::string(kFolder) + "/" + c.model;
    const Arrays arrays = ReadArrays(stem + ".b3.npz");
    for (const auto& [precision, name] :
         {std::pair{DevicePrecision::kF16, " of them in f16\n"},
          std::pair{DevicePrecision::kBf16, " of them in bf16\n"}}) {
      const auto context = Make(Import(stem + ".onnx"), precision);
      ASSERT_TRUE(context->Run(arrays.inputs).ok());
      const DeviceCounts counts = context->device_counts();
      EXPECT_GE(static_cast<double>(counts.narrow_bytes),
                c.least * static_cast<double>(counts.made_bytes))
          << c.model << "\n"
          << context->PlanText();
      EXPECT_TRUE(context->PlanText().ends_with(name)) << context->PlanText();
      const auto in_tf32 = Make(Import(stem + ".onnx"), DevicePrecision::kTf32);
      ASSERT_TRUE(in_tf32->Run(arrays.inputs).ok());
      EXPECT_EQ(in_tf32->device_counts().narrow_bytes, 0);
      // What is written in 16 bits is half as large, and nothing else changed
      // but for copies in f32.
      EXPECT_LT(counts.made_bytes, in_tf32->device_counts().made_bytes * 3 / 4)
          << c.model;
    }
  }
}

// A value that three operators on the device read and one on the CPU.
TEST_F(KeptFormatsOnDevice, ACopyInFloatsIsMadeOnceForWhatReadsNoOther) {
  GraphMaker make;
  const ValueId x = make.Input({3, 8});
  const ValueId product = make.Node("MatMul", {x, make.Weight({8, 16})});
  for (const char* op : {"Softmax", "LogSoftmax", "ReduceMax"}) {
    make.graph.AddOutput(op, make.Node(op, {product}));
  }
  for (const int64_t axis : {0, 1}) {
    const ValueId on =
        make.graph.AddConstant("axis", Tensor::Scalar(int64_t{axis}));
    make.graph.AddOutput("sums", make.Node("CumSum", {product, on}));
  }
  std::vector<Tensor> inputs;
  inputs.push_back(make.Random({3, 8}));
  const auto context = Make(make.graph, DevicePrecision::kF16);
  const auto got = context->Run(inputs);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  const std::string plan = context->PlanText();
  EXPECT_TRUE(LineOf(plan, "cuda:0  Linear").ends_with(" f16 -> f16")) << plan;
  EXPECT_EQ(Count(plan, "cuda:0  Convert 48 to f32"), 1) << plan;
  EXPECT_EQ(Count(plan, "cpu     CumSum"), 2) << plan;
  EXPECT_EQ(Count(plan, "copy    192 bytes to the host"), 3) << plan;
  const auto want = (*CreateInstance(make.graph.Copy(), {}))->Run(inputs);
  ASSERT_TRUE(want.ok());
  // Products of 8 rounded factors, then a value of up to 16 is rounded, and 16
  // of them are added.
  for (size_t i = 0; i < got->size(); ++i) {
    ExpectClose((*got)[i], (*want)[i], 0x1p-6);
  }
}

// The copy would move more bytes than 16 bits save.
TEST_F(KeptFormatsOnDevice, AValueOfFewReadersThatTheCpuReadsStaysInFloats) {
  GraphMaker make;
  const ValueId x = make.Input({3, 8});
  const ValueId product = make.Node("MatMul", {x, make.Weight({8, 16})});
  const ValueId axis =
      make.graph.AddConstant("axis", Tensor::Scalar(int64_t{1}));
  make.graph.AddOutput("sums", make.Node("CumSum", {product, axis}));
  make.graph.AddOutput("soft", make.Node("Softmax", {product}));
  std::vector<Tensor> inputs;
  inputs.push_back(make.Random({3, 8}));
  const auto context = Make(make.graph, DevicePrecision::kF16);
  ASSERT_TRUE(context->Run(inputs).ok());
  EXPECT_EQ(context->device_counts().narrow_bytes, 0) << context->PlanText();
  EXPECT_EQ(context->PlanText().find("Convert"), std::string::npos);
}

TEST_F(KeptFormatsOnDevice, WhatNeedsAllItsBitsKeepsThem) {
  struct Case {
    const char* op;
    bool narrow;
  };
  for (const Case& c : {Case{"Neg", true}, {"Sin", false}, {"Floor", false}}) {
    GraphMaker make;
    const ValueId x = make.Input({3, 8});
    const ValueId soft = make.Node("Softmax", {x});
    const ValueId y = make.Node("Add", {make.Node(c.op, {soft}), soft});
    make.graph.AddOutput("y", make.Node("Softmax", {y}));
    std::vector<Tensor> inputs;
    inputs.push_back(make.Random({3, 8}));
    const auto context = Make(make.graph, DevicePrecision::kF16);
    ASSERT_TRUE(context->Run(inputs).ok());
    const std::string plan = context->PlanText();
    EXPECT_EQ(LineOf(plan, "cuda:0  Softmax").ends_with("-> f16"), c.narrow)
        << plan;
    EXPECT_TRUE(LineOf(plan, "cuda:0  Pointwise").ends_with("-> f16")) << plan;
  }
}

// 300 * 300 is beyond f16: their mean is not.
TEST_F(KeptFormatsOnDevice, SquaresThatAMeanAddsStayInFloats) {
  GraphMaker make;
  const ValueId x = make.Input({3, 8});
  const ValueId large = make.Node("Mul", {x, make.Number(300)});
  const ValueId mean =
      make.Node("ReduceMean", {make.Node("Mul", {large, large})});
  make.graph.AddOutput("y", make.Node("Sqrt", {mean}));
  std::vector<Tensor> inputs;
  inputs.push_back(make.Random({3, 8}));
  const auto got = Make(make.graph, DevicePrecision::kF16)->Run(inputs);
  const auto want = (*CreateInstance(make.graph.Copy(), {}))->Run(inputs);
  ASSERT_TRUE(got.ok() && want.ok());
  ExpectClose((*got)[0], (*want)[0], 0x1p-9);
}

}  // namespace
}  // namespace millrace::models::graph
