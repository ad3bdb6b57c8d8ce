// Convolutions of graphs by cuDNN (models/graph/cuda/conv_layers.h): networks
// give what PyTorch gave, an image keeps its bits in any batch, and what the
// library cannot do the kernels do.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "models/graph/cuda/conv_layers.h"
#include "tests/cuda_emulation/cuda_graph_fixture.h"
#include "tests/unit/models/graph/graph_maker.h"
#include "tests/unit/models/graph/tiny_model_arrays.h"

namespace millrace::models::graph {
namespace {

constexpr const char* kByCudnn = " by cuDNN";
constexpr DeviceLibraries kCudnn = {.conv = ConvBackend::kCudnn};

// The emulated module and the library that stands in, or on a machine with a
// GPU those that MILLRACE_TEST_CUDA_MODULE and MILLRACE_TEST_CUDNN name.
class CudnnGraphs : public CudaGraph {
 protected:
  CudnnGraphs() {
    const char* const real = std::getenv("MILLRACE_TEST_CUDNN");
    has_library_ = Emulated() || real != nullptr;
    if (has_library_) {
      setenv("MILLRACE_CUDNN", Emulated() ? FAKE_CUDNN : real, 1);
    }
  }
  ~CudnnGraphs() override {
    EXPECT_EQ(Ask("wrong"), wrong_) << "the real library would refuse a call";
    for (const char* name : {"MILLRACE_CUDNN", "MILLRACE_FAKE_CUDNN",
                             "MILLRACE_FAKE_CUDNN_VERSION"}) {
      unsetenv(name);
    }
  }
  void SetUp() override {
    if (!has_library_) GTEST_SKIP() << "MILLRACE_TEST_CUDNN names no cuDNN";
    const auto device =
        OpenGraphDevice("cuda:0", DevicePrecision::kF32, kCudnn);
    wrong_ = Ask("wrong");
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    ASSERT_EQ((*device)->libraries().conv, ConvBackend::kCudnn)
        << "the library cannot be used";
  }

  // See fake_cudnn.cc. 0 where it is another library.
  static void Tell(const std::string& what) {
    setenv("MILLRACE_FAKE_CUDNN", what.c_str(), 1);
  }
  static int Ask(const std::string& what) {
    void* library = dlopen(FAKE_CUDNN, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return 0;
    return reinterpret_cast<int (*)()>(
        dlsym(library, ("millrace_fake_cudnn_" + what).c_str()))();
  }
  static std::unique_ptr<ExecutionContext> ByCudnn(const Graph& graph,
                                                   DevicePrecision precision) {
    return Make(graph, precision, kCudnn);
  }

 private:
  bool has_library_ = false;  // one that is named and fails, fails the test
  int wrong_ = 0;             // uses before this test
};

// cuDNN may cut values to tf32 instead of rounding them: twice their error.
double CudnnToleranceOf(DevicePrecision precision) {
  return precision == DevicePrecision::kTf32 ? 2 * ToleranceOf(precision)
                                             : ToleranceOf(precision);
}

class CudnnNetworks : public CudnnGraphs,
                      public testing::WithParamInterface<DevicePrecision> {};

// The first layer of a picture has three channels: kernels compute it.
TEST_P(CudnnNetworks, GiveWhatPyTorchGave) {
  const std::string stem = std::string(kFolder) + "/resnet50";
  const auto context = ByCudnn(Import(stem + ".onnx"), GetParam());
  for (const char* tag : {"b2", "b3"}) {
    const Arrays arrays = ReadArrays(stem + "." + tag + ".npz");
    const int before = Ask("executions");
    const auto got = context->Run(arrays.inputs);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    for (size_t i = 0; i < got->size(); ++i) {
      ExpectClose((*got)[i], arrays.outputs[i], CudnnToleranceOf(GetParam()));
    }
    EXPECT_GE(Count(context->PlanText(), kByCudnn), 2) << context->PlanText();
    EXPECT_EQ(context->device_counts().by_cudnn,
              Count(context->PlanText(), kByCudnn));
    if (Emulated()) {
      EXPECT_GT(Ask("executions"), before);
    }
  }
}

// Two layers with bias, function and a residual; the second has groups, steps
// and padding at one side.
Graph TwoLayers(GraphMaker& make) {
  const ValueId x =
      make.graph.AddInput("x", DType::kF32, {{}, {.size = 16}, {}, {}});
  const auto conv = [&](ValueId in, const Shape& weight, Attrs attrs) {
    return make.Node("Conv",
                     {in, make.Weight(weight), make.Weight({weight[0]})},
                     std::move(attrs));
  };
  const ValueId first = make.Node("Relu", {conv(x, {24, 16, 1, 1}, {})});
  const ValueId second =
      conv(first, {24, 24, 3, 3}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const ValueId sum = make.Node("Relu", {make.Node("Add", {second, first})});
  make.graph.AddOutput("y", conv(sum, {16, 12, 2, 3},
                                 {{"group", int64_t{2}},
                                  {"strides", std::vector<int64_t>{2, 1}},
                                  {"dilations", std::vector<int64_t>{1, 2}},
                                  {"pads", std::vector<int64_t>{0, 2, 1, 0}}}));
  return std::move(make.graph);
}
std::vector<Tensor> Images(GraphMaker& make, int64_t images) {
  std::vector<Tensor> inputs;
  inputs.push_back(make.Random({images, 16, 5, 6}));
  return inputs;
}

// In calls of 1, 4 and 16 images, and of some of each.
TEST_P(CudnnNetworks, ImagesHaveTheSameBitsInAnyNumber) {
  GraphMaker make;
  const Graph graph = TwoLayers(make);
  const auto context = ByCudnn(graph, GetParam());
  const auto inputs = Images(make, 22);
  const auto all = context->Run(inputs);
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  if (Emulated()) {
    EXPECT_EQ(Count(context->PlanText(), kByCudnn), 3) << context->PlanText();
  }
  const auto want = (*CreateInstance(graph.Copy(), {}))->Run(inputs);
  ASSERT_TRUE(want.ok());
  ExpectClose((*all)[0], (*want)[0], CudnnToleranceOf(GetParam()));
  for (const int64_t i : {0, 15, 16, 19, 21}) {
    const auto one = context->Run(Row(inputs, i));
    ASSERT_TRUE(one.ok()) << one.status().ToString();
    EXPECT_TRUE(SameBytes(*one, Row(*all, i))) << i;
  }
  std::vector<Tensor> some;
  some.push_back(Tensor::Make(DType::kF32, {5, 16, 5, 6}));
  std::memcpy(some[0].bytes(), inputs[0].bytes(),
              static_cast<size_t>(some[0].num_bytes()));
  for (int run = 0; run < 3; ++run) {  // launched, captured, run again
    const auto got = context->Run(some);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ(std::memcmp((*got)[0].bytes(), (*all)[0].bytes(),
                          static_cast<size_t>((*got)[0].num_bytes())),
              0)
        << "run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudnnNetworks,
                         testing::Values(DevicePrecision::kF32,
                                         DevicePrecision::kTf32,
                                         DevicePrecision::kF16,
                                         DevicePrecision::kBf16),
                         [](const auto& test) {
                           return std::string(DevicePrecisionName(test.param));
                         });

TEST_F(CudnnGraphs, FunctionsAndVolumesAreThoseOfTheCores) {
  struct Case {
    std::string_view op;
    Attrs attrs;
    int layers;  // that cuDNN computes
  };
  const std::vector<Case> cases = {
      {"Relu", {}, 1},
      {"LeakyRelu", {{"alpha", 0.3}}, 1},
      {"Sigmoid", {}, 1},
      {"Tanh", {}, 1},
      {"Elu", {{"alpha", 0.7}}, 1},
      {"Gelu", {}, 1},
      {"Gelu", {{"approximate", std::string("tanh")}}, 1},
      {"Softplus", {}, 1},
      {"HardSwish", {}, 0}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.op);
    GraphMaker make;
    const ValueId x =
        make.graph.AddInput("x", DType::kF32, {{}, {.size = 8}, {}, {}, {}});
    const ValueId conv =
        make.Node("Conv", {x, make.Weight({8, 8, 2, 2, 1}), make.Weight({8})});
    make.graph.AddOutput("y", make.Node(each.op, {conv}, each.attrs));
    std::vector<Tensor> inputs;
    inputs.push_back(make.Random({2, 8, 3, 3, 2}));
    const auto context = ByCudnn(make.graph, DevicePrecision::kF32);
    const auto got = context->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    if (Emulated()) {
      EXPECT_EQ(Count(context->PlanText(), kByCudnn), each.layers)
          << context->PlanText();
    }
    const auto want = (*CreateInstance(make.graph.Copy(), {}))->Run(inputs);
    ASSERT_TRUE(want.ok());
    ExpectClose((*got)[0], (*want)[0], 1e-5);
  }
}

TEST_F(CudnnGraphs, ContextsRunBesideEachOther) {
  GraphMaker make;
  auto compiled = CompiledGraph::Create(
      TwoLayers(make), OnDevice(DevicePrecision::kTf32, kCudnn));
  ASSERT_TRUE(compiled.ok());
  const auto inputs = Images(make, 6);
  const auto want = ExecutionContext::Create(*compiled, {})->Run(inputs);
  ASSERT_TRUE(want.ok());
  std::vector<std::thread> threads;
  std::vector<int> same(3);
  for (size_t i = 0; i < same.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto context = ExecutionContext::Create(*compiled, {});
      for (int run = 0; run < 4; ++run) {
        const auto got = context->Run(inputs);
        same[i] += got.ok() && SameBytes(*got, *want) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(same.size(), 4));
}

// Images of new sizes, whose engines take their time to be built, hold up no
// others: neither plans that are there nor new ones for images of known sizes.
TEST_F(CudnnGraphs, CallsDoNotWaitForEnginesThatAreBuilt) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  GraphMaker make;
  auto compiled = CompiledGraph::Create(
      TwoLayers(make), OnDevice(DevicePrecision::kTf32, kCudnn));
  ASSERT_TRUE(compiled.ok());
  const auto context = ExecutionContext::Create(*compiled, {});
  const auto inputs = Images(make, 5);
  const auto want = Must(context->Run(inputs));
  std::vector<Tensor> others;
  others.push_back(make.Random({2, 16, 7, 9}));
  constexpr auto kLimit = std::chrono::seconds(10);
  const auto run_others = [&] {
    return ExecutionContext::Create(*compiled, {})->Run(others);
  };
  const int before = Ask("held");
  Tell("hold");
  auto first = std::async(std::launch::async, run_others);
  const auto until = std::chrono::steady_clock::now() + kLimit;
  while (Ask("held") == before && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (Ask("held") == before) {
    Tell("");
    FAIL() << "no engine is built: " << first.get().status().ToString();
  }
  auto second = std::async(std::launch::async, run_others);
  auto known = std::async(std::launch::async, [&] {
    return SameBytes(Must(context->Run(inputs)), want);
  });
  const bool has_ended = known.wait_for(kLimit) == std::future_status::ready;
  auto other_batch = std::async(std::launch::async, [&] {
    known.wait();  // of the same context
    return SameBytes(Must(context->Run(Row(inputs, 3))), Row(want, 3));
  });
  const bool has_other_ended =
      other_batch.wait_for(kLimit) == std::future_status::ready;
  EXPECT_EQ(Ask("held"), before + 1) << "the second waits for the first";
  Tell("");
  EXPECT_TRUE(has_ended);
  EXPECT_TRUE(known.get());
  EXPECT_TRUE(has_other_ended) << "a batch that was not run before";
  EXPECT_TRUE(other_batch.get());
  const auto got = first.get(), again = second.get();
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_TRUE(SameBytes(*got, *again));
}

TEST_F(CudnnGraphs, TheFirstEngineThatMayServeDoes) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  GraphMaker make;
  const Graph graph = TwoLayers(make);
  const auto inputs = Images(make, 9);
  const auto run = [&](const char* what, DevicePrecision precision, int layers,
                       int engine) {
    SCOPED_TRACE(what);
    Tell(what);
    const auto context = ByCudnn(graph, precision);
    auto got = context->Run(inputs);
    EXPECT_EQ(Count(context->PlanText(), kByCudnn), layers);
    if (layers > 0) {
      EXPECT_EQ(Ask("engine"), engine);
    }
    EXPECT_TRUE(got.ok());
    return *std::move(got);
  };
  constexpr auto kTf32 = DevicePrecision::kTf32;
  const auto native = Make(graph, kTf32)->Run(inputs);
  ASSERT_TRUE(native.ok());
  const auto first = run("", kTf32, 3, 5);
  EXPECT_FALSE(SameBytes(first, *native)) << "another order of sums";
  EXPECT_TRUE(SameBytes(run("", kTf32, 3, 5), first)) << "each time";
  EXPECT_FALSE(SameBytes(run("uneven", kTf32, 3, 6), first));
  EXPECT_TRUE(SameBytes(run("all_uneven", kTf32, 0, -1), *native));
  EXPECT_TRUE(SameBytes(run("none", kTf32, 0, -1), *native));
  run("unfused", kTf32, 3, 6);
  EXPECT_FALSE(SameBytes(run("nan", kTf32, 3, 6), first));
  run("nan", DevicePrecision::kF16, 3, 6);
  run("nan", DevicePrecision::kBf16, 3, 6);
  run("", DevicePrecision::kF32, 3, 7);
  EXPECT_EQ(Ask("alive"), 0) << "all is given back";
  Tell("create");
  const auto device = OpenGraphDevice("cuda:0", kTf32, kCudnn);
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ((*device)->libraries().conv, ConvBackend::kNative);
}

TEST_F(CudnnGraphs, WithoutMemoryToTryEnginesKernelsConvolve) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  GraphMaker make;
  const auto context = ByCudnn(TwoLayers(make), DevicePrecision::kTf32);
  SetBytes((int64_t{1} << 30) - FreeBytes() + (int64_t{8} << 20));
  const auto got = context->Run(Images(make, 2));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(Count(context->PlanText(), kByCudnn), 0) << context->PlanText();
  SetBytes(int64_t{1} << 30);
  // What was decided for a shape stays: an image keeps its bits.
  ASSERT_TRUE(context->Run(Images(make, 3)).ok());
  EXPECT_EQ(Count(context->PlanText(), kByCudnn), 0) << context->PlanText();
}

TEST_F(CudnnGraphs, ACallThatFailsEndsOneRun) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  GraphMaker make;
  const auto context = ByCudnn(TwoLayers(make), DevicePrecision::kF32);
  const auto inputs = Images(make, 5);
  const auto want = context->Run(inputs);
  ASSERT_TRUE(want.ok());
  const auto run_failing = [&](const std::vector<Tensor>& failing) {
    Tell("execute:" + std::to_string(Ask("executions") + 2));
    auto got = context->Run(failing);
    Tell("");
    return got;
  };
  // While it is captured: it is asked for again, without a capture.
  const auto captured = run_failing(inputs);
  ASSERT_TRUE(captured.ok()) << captured.status().ToString();
  EXPECT_TRUE(SameBytes(*captured, *want));
  EXPECT_EQ(run_failing(Images(make, 3)).status().message(),
            "cuda:0 failed: cuDNN cannot convolve: "
            "CUDNN_STATUS_EXECUTION_FAILED");
  const auto again = context->Run(inputs);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_TRUE(SameBytes(*again, *want));
}

TEST(ConvLayers, TakeConvolutionsThatLieAsTheLibraryReadsThem) {
  using cuda::GraphFormat;
  cuda::GraphConvArgs args = {};
  args.precision = cuda::GraphPrecision::kF16;
  args.batch = 3;
  args.channels = 16;
  args.outputs = 24;
  args.groups = 1;
  args.window = {.in = {1, 9, 8},
                 .out = {1, 5, 8},
                 .kernel = {1, 3, 3},
                 .stride = {1, 2, 1},
                 .dilation = {1, 1, 1},
                 .pad = {0, 1, 1},
                 .pad_end = {0, 1, 1}};
  ConvFormats formats;
  formats.x = formats.y = GraphFormat::kF16;
  const auto shape = ConvLayers::ShapeOf(args, formats);
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(shape->x_bytes(), 9 * 8 * 16 * 2);
  EXPECT_EQ(shape->w_bytes(), 24 * 9 * 16 * 2);
  EXPECT_EQ(CudnnConvolutions::CallImages(*shape), 64);
  cuda::GraphConvArgs other = args;
  other.batch = 300;
  EXPECT_EQ(ConvLayers::ShapeOf(other, formats), shape)
      << "the batch does not decide";
  const auto refused = [&](auto change) {
    cuda::GraphConvArgs changed = args;
    ConvFormats as = formats;
    change(changed, as);
    return !ConvLayers::ShapeOf(changed, as).has_value();
  };
  using Args = cuda::GraphConvArgs;
  EXPECT_FALSE(refused([](Args&, ConvFormats&) {}));
  EXPECT_TRUE(refused([](Args&, ConvFormats& as) { as.x = GraphFormat::kF32; }))
      << "images are rounded on the way";
  EXPECT_TRUE(refused([](Args& a, ConvFormats&) { a.transposed = true; }));
  EXPECT_TRUE(refused([](Args& a, ConvFormats&) { a.channels = 3; }))
      << "weights of an output in no whole 16 bytes";
  EXPECT_TRUE(refused([](Args& a, ConvFormats&) { a.window.pad[1] = -1; }));
  EXPECT_TRUE(refused([](Args& a, ConvFormats&) { a.window.out[1] = 6; }))
      << "a window beyond the padding";
  EXPECT_TRUE(refused([](Args& a, ConvFormats&) {
                a.outputs = 3;
                a.window.in[2] = a.window.out[2] = 7;
              }) &&
              refused([](Args& a, ConvFormats&) {
                a.epilogue.f = cuda::Function::kHardSwish;
              }));
}

}  // namespace
}  // namespace millrace::models::graph
