// Graphs on the GPU that the CPU emulates, compiled as any other: the networks
// of tests/data/graph give what PyTorch gave, an operator without a kernel runs
// on the CPU in the middle, and what goes wrong ends one run. The module is
// opened by dlopen, as the real one is.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "models/graph/op.h"
#include "tests/cuda_emulation/cuda_graph_fixture.h"
#include "tests/unit/models/graph/graph_maker.h"
#include "tests/unit/models/graph/tiny_model_arrays.h"

namespace millrace::models::graph {
namespace {

// At least so many operators run on the device, and no more on the CPU.
struct Model {
  std::string file;
  int64_t least_on_device;
  int64_t most_on_cpu;
};
class TinyOnDevice
    : public CudaGraph,
      public testing::WithParamInterface<std::tuple<Model, DevicePrecision>> {};

TEST_P(TinyOnDevice, GivesWhatPyTorchGave) {
  const auto& [model, precision] = GetParam();
  const std::string path = std::string(kFolder) + "/" + model.file;
  const auto context = Make(Import(path), precision);
  int64_t runs = 0;
  for (const char* tag : {"b2", "b3", "l11"}) {
    const std::string stem = path.substr(0, path.find('.'));
    const std::string file = stem + "." + tag + ".npz";
    if (!std::filesystem::exists(file)) continue;
    const Arrays arrays = ReadArrays(file);
    SCOPED_TRACE(tag);
    const auto got = context->Run(arrays.inputs);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->size(), arrays.outputs.size());
    for (size_t i = 0; i < got->size(); ++i) {
      ExpectClose((*got)[i], arrays.outputs[i], ToleranceOf(precision));
    }
    const DeviceCounts counts = context->device_counts();
    EXPECT_GE(counts.on_device, model.least_on_device) << context->PlanText();
    EXPECT_LE(counts.on_cpu, model.most_on_cpu) << context->PlanText();
    // Sizes that were seen before find their plan and what they uploaded.
    // A real GPU's memory is others', too, and its CUDA graphs take some.
    const int64_t free = Emulated() ? FreeBytes() : 0;
    const auto again = context->Run(arrays.inputs);
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(SameBytes(*got, *again));
    if (Emulated()) {
      EXPECT_EQ(FreeBytes(), free);
    }
    ++runs;
  }
  EXPECT_GT(runs, 0);
  // Attention is computed as products are.
  const std::string plan = context->PlanText();
  const size_t at = plan.find("cuda:0  Attention");
  if (at == std::string::npos || precision == DevicePrecision::kF32) return;
  const std::string line = plan.substr(at, plan.find('\n', at) - at);
  EXPECT_TRUE(line.ends_with(" " + std::string(DevicePrecisionName(precision))))
      << line;
}

INSTANTIATE_TEST_SUITE_P(
    All, TinyOnDevice,
    testing::Combine(
        testing::Values(
            Model{"residual.onnx", 12, 0}, Model{"encoder.onnx", 21, 2},
            Model{"causal.pt2", 8, 0}, Model{"bert_base.onnx", 30, 4},
            Model{"convnext_tiny.onnx", 29, 0},
            Model{"densenet121.onnx", 29, 0},
            Model{"efficientnet_b0.onnx", 45, 0},
            Model{"gpt_small.onnx", 25, 0}, Model{"lstm.onnx", 3, 2},
            Model{"minilm.onnx", 30, 4},
            Model{"mobilenet_v3_large.onnx", 25, 0},
            Model{"resnet50.onnx", 16, 0}, Model{"resnet50.pt2", 16, 0},
            Model{"sizes.onnx", 15, 4}, Model{"speech_conv.onnx", 51, 0},
            Model{"swin_t.onnx", 64, 4}, Model{"unet.onnx", 33, 2},
            Model{"vit_tiny.onnx", 21, 0}, Model{"windows.onnx", 11, 1},
            Model{"special.pt2", 40, 20}),
        testing::Values(DevicePrecision::kF32, DevicePrecision::kTf32,
                        DevicePrecision::kF16, DevicePrecision::kBf16)),
    [](const auto& test) {
      std::string name =
          std::get<Model>(test.param).file + "_" +
          std::string(DevicePrecisionName(std::get<1>(test.param)));
      std::replace(name.begin(), name.end(), '.', '_');
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST_F(CudaGraph, ARowHasTheSameBitsAloneAndInABatch) {
  for (const auto& [model, precision] :
       {std::pair{"residual", DevicePrecision::kF32},
        std::pair{"encoder", DevicePrecision::kF32},
        std::pair{"residual", DevicePrecision::kF16},
        std::pair{"encoder", DevicePrecision::kTf32},
        std::pair{"bert_base", DevicePrecision::kF16}}) {
    const std::string stem = std::string(kFolder) + "/" + model;
    const Arrays arrays = ReadArrays(stem + ".b3.npz");
    const auto context = Make(Import(stem + ".onnx"), precision);
    const auto all = context->Run(arrays.inputs);
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    for (int64_t row = 0; row < 3; ++row) {
      const auto one = context->Run(Row(arrays.inputs, row));
      ASSERT_TRUE(one.ok()) << one.status().ToString();
      for (size_t i = 0; i < one->size(); ++i) {
        const int64_t bytes = (*one)[i].num_bytes();
        EXPECT_EQ(
            std::memcmp((*one)[i].bytes(), (*all)[i].bytes() + row * bytes,
                        static_cast<size_t>(bytes)),
            0)
            << model << ", row " << row;
      }
    }
  }
}

// y = softmax(cumsum(x W)) + x W, whose CumSum has no kernel.
Graph WithACumSum(GraphMaker& make, const Tensor& weight) {
  const ValueId x = make.Input({3, 8});
  const ValueId w = make.graph.AddConstant("w", weight.Copy());
  const ValueId product = make.Node("MatMul", {x, w});
  const ValueId axis =
      make.graph.AddConstant("axis", Tensor::Scalar(int64_t{1}));
  const ValueId sums = make.Node("CumSum", {product, axis});
  const ValueId soft = make.Node("Softmax", {sums});
  make.graph.AddOutput("y", make.Node("Add", {soft, product}));
  return std::move(make.graph);
}
std::vector<Tensor> Some(GraphMaker& make) {
  std::vector<Tensor> inputs;
  inputs.push_back(make.Random({3, 8}));
  return inputs;
}

TEST_F(CudaGraph, AnOperatorWithoutAKernelRunsOnTheCpu) {
  GraphMaker make;
  const Tensor weight = make.Random({8, 16});
  const Graph graph = WithACumSum(make, weight);
  const auto inputs = Some(make);
  const auto context = Make(graph);
  const auto got = context->Run(inputs);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  const auto want = (*CreateInstance(graph.Copy(), {}))->Run(inputs);
  ASSERT_TRUE(want.ok());
  ExpectClose((*got)[0], (*want)[0]);
  const DeviceCounts counts = context->device_counts();
  EXPECT_EQ(counts.on_cpu, 1) << context->PlanText();
  EXPECT_EQ(counts.on_device, 3);
  // x there, the product back, its sums there, y back.
  EXPECT_EQ(counts.copies, 4);
  EXPECT_EQ(counts.copied_bytes, 4 * 3 * (8 + 16 + 16 + 16));
  EXPECT_NE(context->PlanText().find("cpu     CumSum"), std::string::npos);
  EXPECT_NE(context->PlanText().find("cuda:0  Softmax"), std::string::npos);

  Trace trace;
  ASSERT_TRUE(context->Run(inputs, {.trace = &trace}).ok());
  ASSERT_EQ(trace.steps.size(), 7u);
  EXPECT_GT(trace.steps[1].macs, 0);
  // The device's steps by its events, the CumSum by the host's clock: one
  // behind the other.
  int64_t at_ns = 0;
  for (const StepSpan& span : trace.spans.at(0)) {
    EXPECT_GE(span.begin_ns, at_ns);
    EXPECT_GT(span.end_ns, span.begin_ns);
    at_ns = span.end_ns;
  }
  EXPECT_LE(at_ns, trace.run_ns);
  if (!Emulated()) return;
  const auto fail_events = EmulatedFunction<void(bool)>("fail_events");
  fail_events(true);
  EXPECT_EQ(context->Run(inputs, {.trace = &trace}).status().message(),
            "cuda:0 failed: an emulated fault");
  EXPECT_TRUE(context->Run(inputs).ok()) << "nothing is timed";
  fail_events(false);
  EXPECT_TRUE(context->Run(inputs, {.trace = &trace}).ok());
}

// Three values that scale rows, not columns, are left to the CPU.
TEST_F(CudaGraph, AScaleOfEachRowIsNotTakenForOneOfEachColumn) {
  for (const bool of_rows : {false, true}) {
    GraphMaker make;
    const ValueId x = make.Input({3, 3});
    const ValueId scale = make.Weight(of_rows ? Shape{3, 1} : Shape{1, 3});
    make.graph.AddOutput("y", make.Node("LayerNormalization", {x, scale}));
    std::vector<Tensor> inputs;
    inputs.push_back(make.Random({3, 3}));
    InstanceOptions interpret;
    interpret.interpret = true;
    const auto context = Make(make.graph);
    const auto got = context->Run(inputs);
    const auto want =
        (*CreateInstance(make.graph.Copy(), interpret))->Run(inputs);
    ASSERT_TRUE(got.ok() && want.ok());
    EXPECT_EQ(context->device_counts().on_device, of_rows ? 0 : 1);
    ExpectClose((*got)[0], (*want)[0]);
  }
}

TEST_F(CudaGraph, ContextsShareWeightsAndRunBesideEachOther) {
  GraphMaker make;
  const Tensor weight = make.Random({8, 16});
  const Graph graph = WithACumSum(make, weight);
  const auto inputs = Some(make);
  auto compiled = CompiledGraph::Create(graph.Copy(), OnDevice());
  ASSERT_TRUE(compiled.ok());
  std::vector<std::unique_ptr<ExecutionContext>> contexts;
  for (int i = 0; i < 3; ++i) {
    contexts.push_back(ExecutionContext::Create(*compiled, {}));
  }
  const auto want = contexts[0]->Run(inputs);
  ASSERT_TRUE(want.ok());
  std::vector<std::thread> threads;
  std::vector<int> same(contexts.size());
  for (size_t i = 0; i < contexts.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int run = 0; run < 20; ++run) {
        const auto got = contexts[i]->Run(inputs);
        same[i] += got.ok() && SameBytes(*got, *want) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(contexts.size(), 20));
}

// A plan without steps on the CPU is captured at its second run.
TEST_F(CudaGraph, ACapturedPlanGivesTheSameBitsForOtherInputsAndSizes) {
  const auto graph = Import(std::string(kFolder) + "/resnet50.onnx");
  const auto context = Make(graph, DevicePrecision::kF16);
  const auto fresh = [&](const std::vector<Tensor>& inputs) {
    return Make(graph, DevicePrecision::kF16)->Run(inputs);
  };
  std::vector<std::vector<Tensor>> inputs;
  for (const char* tag : {"b2", "b3", "b1"}) {
    inputs.push_back(
        ReadArrays(std::string(kFolder) + "/resnet50." + tag + ".npz").inputs);
  }
  inputs.push_back(Row(inputs[0], 1));
  // The second size grows the memory, which the first one's graph names.
  for (const size_t i : {0u, 0u, 0u, 1u, 0u, 0u, 1u, 1u, 2u, 3u, 2u, 3u}) {
    const auto got = context->Run(inputs[i]);
    const auto want = fresh(inputs[i]);
    ASSERT_TRUE(got.ok() && want.ok()) << got.status().ToString();
    EXPECT_TRUE(SameBytes(*got, *want)) << i;
  }
}

TEST_F(CudaGraph, AFailedCaptureIsNoFailedRun) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  const auto context = Make(Import(std::string(kFolder) + "/residual.onnx"));
  const auto images =
      ReadArrays(std::string(kFolder) + "/residual.b2.npz").inputs;
  const auto want = Must(context->Run(images));
  const auto graph_runs = EmulatedFunction<int()>("graph_runs");
  const int before = graph_runs();
  const auto fail = EmulatedFunction<void(bool)>("fail_captures");
  fail(true);
  EXPECT_TRUE(SameBytes(Must(context->Run(images)), want));
  fail(false);
  EXPECT_TRUE(SameBytes(Must(context->Run(images)), want));
  EXPECT_EQ(graph_runs(), before) << "it does not try again at once";
  for (int run = 0; run < 20; ++run) {
    EXPECT_TRUE(SameBytes(Must(context->Run(images)), want)) << run;
  }
  EXPECT_GT(graph_runs(), before) << "but later";
}

TEST_F(CudaGraph, ThreeFailedCapturesOfAPlanAreEnough) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  const auto graph = Import(std::string(kFolder) + "/residual.onnx");
  const auto images =
      ReadArrays(std::string(kFolder) + "/residual.b2.npz").inputs;
  const auto want = Must(Make(graph)->Run(images));
  const auto graph_runs = EmulatedFunction<int()>("graph_runs");
  const auto fail = EmulatedFunction<void(bool)>("fail_captures");
  // In so many runs captures fail; whether one works behind them.
  const auto is_captured_behind = [&](int failing_runs) {
    const auto context = Make(graph);
    const int before = graph_runs();
    fail(true);
    for (int run = 0; run < failing_runs; ++run) {
      EXPECT_TRUE(SameBytes(Must(context->Run(images)), want)) << run;
    }
    fail(false);
    EXPECT_EQ(graph_runs(), before);
    for (int run = 0; run < 40; ++run) {
      EXPECT_TRUE(SameBytes(Must(context->Run(images)), want)) << run;
    }
    return graph_runs() > before;
  };
  // Captures are tried in runs 2, 19 and 36.
  EXPECT_TRUE(is_captured_behind(35));
  EXPECT_FALSE(is_captured_behind(36));
}

TEST_F(CudaGraph, ABadIndexEndsOneRunAndSaysWhich) {
  GraphMaker make;
  const ValueId ids = make.graph.AddInput("ids", DType::kI64, {PortDim{}});
  const ValueId rows = make.Node("Gather", {make.Weight({5, 3}), ids});
  make.graph.AddOutput("y", make.Node("Relu", {rows}));
  const auto context = Make(make.graph);
  const auto run = [&](std::vector<int64_t> values) {
    std::vector<Tensor> inputs;
    inputs.push_back(Tensor::Int64s(values));
    return context->Run(inputs);
  };
  EXPECT_TRUE(run({0, -5, 4}).ok());
  EXPECT_GE(context->device_counts().on_device, 1);
  for (int i = 0; i < 2; ++i) {  // as it is asked for, then captured
    const Status bad = run({1, 7, 9}).status();
    EXPECT_EQ(bad.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(bad.message(), "the index 7 is outside of a dimension of 5");
    EXPECT_TRUE(run({4, 0, 1}).ok());
  }
}

TEST_F(CudaGraph, AFaultEndsOneRun) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  GraphMaker make;
  const Tensor weight = make.Random({8, 16});
  const auto context = Make(WithACumSum(make, weight));
  const auto inputs = Some(make);
  const auto want = context->Run(inputs);
  ASSERT_TRUE(want.ok());
  const auto fail = EmulatedFunction<void(int)>("fail_wait");
  for (const int waits : {0, 1}) {
    fail(waits);
    const Status status = context->Run(inputs).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_EQ(status.message(), "cuda:0 failed: an emulated fault");
    const auto again = context->Run(inputs);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_TRUE(SameBytes(*want, *again));
  }
  // A captured plan, which waits once.
  const auto captured = Make(Import(std::string(kFolder) + "/residual.onnx"));
  const auto images =
      ReadArrays(std::string(kFolder) + "/residual.b2.npz").inputs;
  const auto right = captured->Run(images);
  ASSERT_TRUE(right.ok());
  for (int i = 0; i < 2; ++i) {
    fail(0);
    EXPECT_EQ(captured->Run(images).status().message(),
              "cuda:0 failed: an emulated fault");
    const auto again = captured->Run(images);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_TRUE(SameBytes(*right, *again));
  }
}

TEST_F(CudaGraph, MemoryThatRunsOutIsTheRequestsError) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  GraphMaker make;
  const ValueId x = make.graph.AddInput("x", DType::kF32, {{}, {.size = 64}});
  const ValueId y = make.Node("MatMul", {x, make.Weight({64, 64})});
  make.graph.AddOutput("y", make.Node("Softmax", {y}));
  const auto context = Make(make.graph);
  const auto run = [&](int64_t rows) {
    std::vector<Tensor> inputs;
    inputs.push_back(make.Random({rows, 64}));
    return context->Run(inputs).status();
  };
  SetBytes((int64_t{1} << 30) - FreeBytes() + 1000);
  const Status weights = run(1);
  EXPECT_EQ(weights.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(weights.message(),
            "cuda:0 has no memory for a graph's weights, 16384 bytes; end what "
            "else runs on it, take a smaller model, or set device to cpu");
  EXPECT_EQ(CreateInstance(make.graph.Copy(), OnDevice()).status().message(),
            "cuda:0 has 1000 bytes of memory left, and the graph's weights "
            "take 16384 bytes; end what else runs on it, take a smaller model, "
            "or set device to cpu");
  SetBytes(int64_t{1} << 20);
  EXPECT_TRUE(run(2).ok());
  const Status values = run(4096);
  EXPECT_EQ(values.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(values.message().find("send fewer rows or smaller ones"),
            std::string::npos);
  EXPECT_TRUE(run(2).ok());
}

TEST_F(CudaGraph, IsStoppedBetweenSteps) {
  GraphMaker make;
  const Tensor weight = make.Random({8, 16});
  const auto context = Make(WithACumSum(make, weight));
  int left = 4;
  const auto stopped = [&]() -> Status {
    return left-- > 0 ? OkStatus() : Cancelled("enough");
  };
  EXPECT_EQ(context->Run(Some(make), {.stopped = stopped}).status().code(),
            StatusCode::kCancelled);
  EXPECT_TRUE(context->Run(Some(make)).ok());
}

TEST_F(CudaGraph, SeveralDevicesAreNamed) {
  if (!Emulated()) GTEST_SKIP() << "with emulated numbers of GPUs";
  setenv("MILLRACE_EMULATED_DEVICES", "3", 1);
  const auto names = [](const std::string& list) {
    std::string text;
    const auto devices = OpenGraphDevices(list);
    if (!devices.ok()) return std::string(devices.status().message());
    for (const auto& device : *devices) text += device->name() + " ";
    return text;
  };
  EXPECT_EQ(names("cpu"), "");
  EXPECT_EQ(names("cuda:1"), "cuda:1 ");
  EXPECT_EQ(names("cuda:2,cuda:0"), "cuda:2 cuda:0 ");
  EXPECT_EQ(names("cuda:all"), "cuda:0 cuda:1 cuda:2 ");
  EXPECT_EQ(names("cuda:0,cuda:0"),
            "device names cuda:0 twice; name each once");
  EXPECT_EQ(names("cuda:0,cpu"),
            "device is 'cuda:0,cpu', but several must all be GPUs, as in "
            "cuda:0,cuda:1");
  EXPECT_EQ(names("cuda:0,"),
            "device is ''; cpu, cuda:0 (or another number) and auto exist");
  EXPECT_EQ(names("cuda:3"),
            "cuda:3 cannot serve: there are 3 GPUs, numbered from 0; set "
            "device to one of them, or to cpu");
  setenv("MILLRACE_EMULATED_DEVICES", "1", 1);
  EXPECT_TRUE(OpenCudaModule().ok());
  unsetenv("MILLRACE_EMULATED_DEVICES");
}

TEST_F(CudaGraph, EachReasonHasItsSentence) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  EXPECT_EQ(OpenGraphDevice("tpu").status().message(),
            "device is 'tpu'; cpu, cuda:0 (or another number) and auto exist");
  EXPECT_EQ(*OpenGraphDevice("cpu"), nullptr);
  EXPECT_EQ((*OpenGraphDevice("auto"))->name(), "cuda:0");
  EXPECT_EQ(OpenGraphDevice("cuda:3").status().message(),
            "cuda:3 cannot serve: there are 1 GPUs, numbered from 0; set "
            "device to one of them, or to cpu");
  setenv("MILLRACE_CUDA_MODULE", "/nonexistent/module.so", 1);
  const Status none = OpenGraphDevice("cuda:0").status();
  EXPECT_EQ(none.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(*OpenGraphDevice("auto"), nullptr);
}

}  // namespace
}  // namespace millrace::models::graph
