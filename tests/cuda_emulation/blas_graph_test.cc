// Products of graphs by cuBLASLt (models/graph/cuda/blas_layers.h): networks
// give what PyTorch gave, a row keeps its bits in any batch, and what the
// library cannot do the kernels do.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "models/graph/cuda/blas_layers.h"
#include "tests/cuda_emulation/blas_test_library.h"
#include "tests/cuda_emulation/cuda_graph_fixture.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/unit/models/graph/graph_maker.h"
#include "tests/unit/models/graph/tiny_model_arrays.h"

namespace millrace::models::graph {
namespace {

constexpr const char* kByBlas = " by cuBLASLt";
constexpr DeviceLibraries kCublasLt = {.gemm = GemmBackend::kCublasLt};

class BlasGraph : public CudaGraph {
 protected:
  void SetUp() override {
    if (!environment_.has_library()) {
      GTEST_SKIP() << "MILLRACE_TEST_CUBLASLT names no cuBLASLt";
    }
    const auto device =
        OpenGraphDevice("cuda:0", DevicePrecision::kF32, kCublasLt);
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    ASSERT_EQ((*device)->libraries().gemm, GemmBackend::kCublasLt)
        << "the library cannot be used";
  }
  static std::unique_ptr<ExecutionContext> WithBlas(const Graph& graph,
                                                    DevicePrecision precision) {
    return Make(graph, precision, kCublasLt);
  }

  const BlasEnvironment environment_;
};

// cuBLASLt may cut rows to tf32 instead of rounding them: twice their error.
double BlasToleranceOf(DevicePrecision precision) {
  return precision == DevicePrecision::kTf32 ? 2 * ToleranceOf(precision)
                                             : ToleranceOf(precision);
}

class BlasNetworks : public BlasGraph,
                     public testing::WithParamInterface<DevicePrecision> {};

TEST_P(BlasNetworks, GiveWhatPyTorchGave) {
  const DevicePrecision precision = GetParam();
  for (const auto& [model, least] :
       {std::pair{"bert_base", 8}, std::pair{"gpt_small", 6}}) {
    SCOPED_TRACE(model);
    const std::string stem = std::string(kFolder) + "/" + model;
    const auto context = WithBlas(Import(stem + ".onnx"), precision);
    for (const char* tag : {"b2", "b3"}) {
      const Arrays arrays = ReadArrays(stem + "." + tag + ".npz");
      const int before = BlasEnvironment::Products();
      const auto got = context->Run(arrays.inputs);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      for (size_t i = 0; i < got->size(); ++i) {
        ExpectClose((*got)[i], arrays.outputs[i], BlasToleranceOf(precision));
      }
      EXPECT_GE(Count(context->PlanText(), kByBlas), least)
          << context->PlanText();
      if (Emulated()) {
        EXPECT_GE(BlasEnvironment::Products() - before, least);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, BlasNetworks,
                         testing::Values(DevicePrecision::kF32,
                                         DevicePrecision::kTf32,
                                         DevicePrecision::kF16,
                                         DevicePrecision::kBf16),
                         [](const auto& test) {
                           return std::string(DevicePrecisionName(test.param));
                         });

// y = gelu(x V + b) W + x, of rows in any number. With f16 and bf16 x stays
// f32, which kernels round on the way: cuBLASLt multiplies by W alone.
Graph TwoLayers(GraphMaker& make) {
  const ValueId x = make.graph.AddInput("x", DType::kF32, {{}, {.size = 64}});
  const ValueId first = make.Node(
      "Add",
      {make.Node("MatMul", {x, make.Weight({64, 40})}), make.Weight({40})});
  const ValueId second =
      make.Node("MatMul", {make.Node("Gelu", {first}), make.Weight({40, 64})});
  make.graph.AddOutput("y", make.Node("Add", {second, x}));
  return std::move(make.graph);
}

std::vector<Tensor> Rows(GraphMaker& make, int64_t rows) {
  std::vector<Tensor> inputs;
  inputs.push_back(make.Random({rows, 64}));
  return inputs;
}

// In calls of 128 rows, of a few more, and of the most and some behind it.
TEST_P(BlasNetworks, RowsHaveTheSameBitsInAnyNumber) {
  GraphMaker make;
  const Graph graph = TwoLayers(make);
  const auto context = WithBlas(graph, GetParam());
  const bool narrow = GetParam() == DevicePrecision::kF16 ||
                      GetParam() == DevicePrecision::kBf16;
  const auto inputs = Rows(make, 1100);
  const auto all = context->Run(inputs);
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  EXPECT_EQ(Count(context->PlanText(), kByBlas), narrow ? 1 : 2)
      << context->PlanText();
  const auto on_cpu = CreateInstance(graph.Copy(), {});
  const auto want = (*on_cpu)->Run(inputs);
  ASSERT_TRUE(want.ok());
  ExpectClose((*all)[0], (*want)[0], BlasToleranceOf(GetParam()));
  for (const int64_t i : {0, 127, 128, 1023, 1024, 1099}) {
    const auto one = context->Run(Row(inputs, i));
    ASSERT_TRUE(one.ok()) << one.status().ToString();
    EXPECT_TRUE(SameBytes(*one, Row(*all, i))) << i;
  }
  for (const int64_t rows : {5, 129, 300}) {
    std::vector<Tensor> some;
    some.push_back(Tensor::Make(DType::kF32, {rows, 64}));
    std::memcpy(some[0].bytes(), inputs[0].bytes(),
                static_cast<size_t>(some[0].num_bytes()));
    for (int run = 0; run < 3; ++run) {  // launched, captured, run again
      const auto got = context->Run(some);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      EXPECT_EQ(std::memcmp((*got)[0].bytes(), (*all)[0].bytes(),
                            static_cast<size_t>((*got)[0].num_bytes())),
                0)
          << rows << " rows, run " << run;
    }
  }
}

TEST_F(BlasGraph, ContextsRunBesideEachOther) {
  GraphMaker make;
  auto compiled = CompiledGraph::Create(
      TwoLayers(make), OnDevice(DevicePrecision::kTf32, kCublasLt));
  ASSERT_TRUE(compiled.ok());
  const auto inputs = Rows(make, 30);
  const auto want = ExecutionContext::Create(*compiled, {})->Run(inputs);
  ASSERT_TRUE(want.ok());
  std::vector<std::thread> threads;
  std::vector<int> same(3);
  for (size_t i = 0; i < same.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto context = ExecutionContext::Create(*compiled, {});
      for (int run = 0; run < 5; ++run) {
        const auto got = context->Run(inputs);
        same[i] += got.ok() && SameBytes(*got, *want) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(same.size(), 5));
}

TEST_F(BlasGraph, AlgorithmsWhoseBitsDependOnThePlaceAreDropped) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  GraphMaker make;
  const Graph graph = TwoLayers(make);
  const auto inputs = Rows(make, 200);
  const auto native = Make(graph, DevicePrecision::kTf32)->Run(inputs);
  ASSERT_TRUE(native.ok());
  const auto run = [&](const char* what, int layers) {
    BlasEnvironment::Tell(what);
    const auto context = WithBlas(graph, DevicePrecision::kTf32);
    auto got = context->Run(inputs);
    EXPECT_EQ(Count(context->PlanText(), kByBlas), layers) << what;
    EXPECT_TRUE(got.ok());
    return *std::move(got);
  };
  const auto first = run("", 2);
  EXPECT_FALSE(SameBytes(first, *native)) << "another order of sums";
  EXPECT_TRUE(SameBytes(run("uneven", 2), first)) << "by the second algorithm";
  EXPECT_TRUE(SameBytes(run("all_uneven", 0), *native));
  EXPECT_TRUE(SameBytes(run("none", 0), *native));
  EXPECT_EQ(BlasEnvironment::Alive(), 0) << "all is given back";
  BlasEnvironment::Tell("create");
  const auto device =
      OpenGraphDevice("cuda:0", DevicePrecision::kF32, kCublasLt);
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ((*device)->libraries().gemm, GemmBackend::kNative);
}

TEST_F(BlasGraph, WithoutMemoryToTryAlgorithmsKernelsMultiply) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  GraphMaker make;
  const Graph graph = TwoLayers(make);
  const auto inputs = Rows(make, 20);
  const auto context = WithBlas(graph, DevicePrecision::kTf32);
  SetBytes((int64_t{1} << 30) - FreeBytes() + (int64_t{8} << 20));
  const auto got = context->Run(inputs);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(Count(context->PlanText(), kByBlas), 0) << context->PlanText();
  SetBytes(int64_t{1} << 30);
  // What was decided for a shape stays: a row keeps its bits.
  const auto more = context->Run(Rows(make, 21));
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(Count(context->PlanText(), kByBlas), 0) << context->PlanText();
}

TEST_F(BlasGraph, ACallThatFailsEndsOneRun) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  GraphMaker make;
  const auto context = WithBlas(TwoLayers(make), DevicePrecision::kF32);
  const auto inputs = Rows(make, 20);
  const auto want = context->Run(inputs);
  ASSERT_TRUE(want.ok());
  const auto run_failing = [&](const std::vector<Tensor>& failing) {
    BlasEnvironment::Tell(
        ("matmul:" + std::to_string(BlasEnvironment::Products() + 2)).c_str());
    auto got = context->Run(failing);
    BlasEnvironment::Tell("");
    return got;
  };
  // While it is captured: it is asked for again, without a capture.
  const auto captured = run_failing(inputs);
  ASSERT_TRUE(captured.ok()) << captured.status().ToString();
  EXPECT_TRUE(SameBytes(*captured, *want));
  EXPECT_EQ(run_failing(Rows(make, 9)).status().message(),
            "cuda:0 failed: cuBLASLt cannot multiply: the function failed to "
            "launch");
  const auto again = context->Run(inputs);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_TRUE(SameBytes(*again, *want));
}

TEST(BlasLayers, TakeProductsThatLieAsTheLibraryReadsThem) {
  cuda::ProductArgs args = {};
  args.precision = cuda::GraphPrecision::kF16;
  args.m = 3;
  args.n = 16;
  args.k = args.a_row = 40;
  args.a_k = 1;
  args.y_row = 20;
  args.count = 1;
  using cuda::GraphFormat;
  const auto shape = BlasLayers::ShapeOf(args, GraphFormat::kF16);
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(*shape, (BlasShape{.factors = BlasFactors::kF16,
                               .outputs = 16,
                               .inputs = 40,
                               .weights_pitch = 40,
                               .x_pitch = 40}));
  cuda::ProductArgs other = args;
  other.m = 3000;
  EXPECT_EQ(BlasLayers::ShapeOf(other, GraphFormat::kF16), shape)
      << "rows do not decide";
  EXPECT_FALSE(BlasLayers::ShapeOf(args, GraphFormat::kF32))
      << "rows are rounded on the way";
  const auto refused = [&](auto change) {
    cuda::ProductArgs changed = args;
    change(changed);
    return !BlasLayers::ShapeOf(changed, GraphFormat::kF16).has_value();
  };
  using Args = cuda::ProductArgs;
  EXPECT_TRUE(refused([](Args& a) { a.count = 2; }));
  EXPECT_TRUE(refused([](Args& a) { a.a_k = 40; }));
  EXPECT_TRUE(refused([](Args& a) { a.k = 36; })) << "no whole 16 bytes";
  EXPECT_TRUE(refused([](Args& a) { a.a_row = 44; })) << "nor these";
  EXPECT_TRUE(refused([](Args& a) { a.n = 12; }));
  args.precision = cuda::GraphPrecision::kTf32;
  args.k = 36;
  args.a_row = 44;
  EXPECT_TRUE(BlasLayers::ShapeOf(args, GraphFormat::kF32));
}

}  // namespace
}  // namespace millrace::models::graph
