// Programs made by hand: what changes in place, what is typed by promotion,
// what lies strided, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/graph/interpreter.h"
#include "models/graph/pt2/importer.h"
#include "tests/unit/models/graph/pt2_program.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StatusOr<Graph> Import(const Pt2Program& program,
                       ImportReport* report = nullptr) {
  return pt2::ImportPt2Bytes(AsBytes(program.Archive()), report, {});
}

// The program's first output as floats, for one input of rank 1.
std::vector<float> OutputOf(const Pt2Program& program,
                            const std::vector<float>& values) {
  const auto graph = Import(program);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  if (!graph.ok()) return {};
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::From<float>(
      DType::kF32, {static_cast<int64_t>(values.size())}, values));
  const auto outputs = Interpret(*graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (!outputs.ok()) return {};
  const Tensor& y = (*outputs)[0];
  EXPECT_EQ(y.dtype(), DType::kF32);
  return {y.data<float>(), y.data<float>() + y.num_elements()};
}

std::string ErrorOf(const Pt2Program& program) {
  const auto graph = Import(program);
  return graph.ok() ? "" : std::string(graph.status().message());
}

TEST(ImportPt2, PortsHaveTheSymbolsOfTheFile) {
  Pt2Program program;
  program.Input("x", {"s0", "3"});
  program.Node("aten.relu.default", {TensorArg("self", "x")}, "y", {"s0", "3"});
  program.Output("y");
  ImportReport report;
  const auto graph = Import(program, &report);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_EQ(report.format, "PyTorch export, schema 8.20");
  ASSERT_EQ(graph->symbols.size(), 1u);
  EXPECT_EQ(graph->symbols[0].min, 1);
  EXPECT_EQ(graph->symbols[0].max, 64);
  EXPECT_EQ(graph->inputs[0].dims[0].symbol, 0);
  EXPECT_EQ(graph->inputs[0].dims[1].size, 3);
  EXPECT_EQ(graph->outputs[0].dims[0].symbol, 0);
}

// with torch.no_grad(): t = x[:n * 2] * 3
// return t + n, as PyTorch writes it down.
TEST(ImportPt2, ABodyThatOnlyStopsGradientsIsPartOfTheProgram) {
  Pt2Program program;
  program.Input("x", {"s0", "4"});
  const std::string body =
      R"({"name":"","arg":{"as_graph":{"name":"submod","graph":{)"
      R"("inputs":[{"as_tensor":{"name":"x"}},{"as_sym_int":{"as_name":"n"}}],)"
      R"("outputs":[{"as_tensor":{"name":"y"}},{"as_sym_int":{"as_name":"m"}}],)"
      R"("nodes":[{"target":"torch.ops.aten.multiply.Scalar","inputs":[)"
      R"({"name":"self","arg":{"as_tensor":{"name":"x"}}},)"
      R"({"name":"other","arg":{"as_int":3}}],)"
      R"("outputs":[{"as_tensor":{"name":"y"}}],"name":"y"},)"
      R"({"target":"_operator.mul","inputs":[)"
      R"({"name":"a","arg":{"as_sym_int":{"as_name":"n"}}},)"
      R"({"name":"b","arg":{"as_int":2}}],)"
      R"("outputs":[{"as_sym_int":{"as_name":"m"}}],"name":"m"}],)"
      R"("tensor_values":{"x":{"dtype":7,"sizes":[{"as_int":2},{"as_int":4}],)"
      R"("strides":[{"as_int":4},{"as_int":1}]},)"
      R"("y":{"dtype":7,"sizes":[{"as_int":2},{"as_int":4}],)"
      R"("strides":[{"as_int":4},{"as_int":1}]}}}}}})";
  const auto unnamed = [](const std::string& arg) {
    return R"({"name":"","arg":)" + arg + "}";
  };
  program.Meta("y", {"s0", "4"});
  program.RawNode("aten.sym_size.int",
                  {TensorArg("self", "x"), IntArg("dim", "0")},
                  R"({"as_sym_int":{"as_name":"n"}})");
  program.RawNode(
      "higher_order.wrap_with_set_grad_enabled",
      {unnamed(R"({"as_bool":false})"), body,
       unnamed(R"({"as_tensor":{"name":"x"}})"),
       unnamed(R"({"as_sym_int":{"as_name":"n"}})")},
      R"({"as_tensor":{"name":"y"}},{"as_sym_int":{"as_name":"m"}})");
  program.Node("aten.add.Scalar",
               {TensorArg("self", "y"),
                R"({"name":"other","arg":{"as_sym_int":{"as_name":"m"}}})"},
               "z", {"s0", "4"});
  program.Output("z");
  const auto graph = Import(program);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  Tensor x = Tensor::Make(DType::kF32, {2, 4});
  std::fill_n(x.data<float>(), 8, 1.5f);
  std::vector<Tensor> inputs;
  inputs.push_back(std::move(x));
  const auto got = Interpret(*graph, inputs);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ((*got)[0].data<float>()[7], 1.5f * 3 + 4);
}

// A body (a) → (t) of one node.
std::string Body(const std::string& target, const std::string& result = "t") {
  const std::string meta =
      R"({"dtype":7,"sizes":[{"as_int":2}],"strides":[{"as_int":1}]})";
  return R"({"name":"","arg":{"as_graph":{"name":"f","graph":{)"
         R"("inputs":[{"as_tensor":{"name":"a"}}],)"
         R"("outputs":[{"as_tensor":{"name":")" +
         result + R"("}}],"nodes":[{"target":"torch.ops.)" + target +
         R"(","inputs":[{"name":"self","arg":{"as_tensor":{"name":"a"}}}],)"
         R"("outputs":[{"as_tensor":{"name":"t"}}],"name":"t"}],)"
         R"("tensor_values":{"a":)" +
         meta + R"(,"t":)" + meta + "}}}}}";
}

std::string Bare(const std::string& arg) {
  return R"({"name":"","arg":)" + arg + "}";
}

// y = cond(x[0] > 0, f, g, [x])
Pt2Program Branch(const std::vector<std::string>& bodies,
                  const std::string& operands = R"([{"name":"x"}])") {
  Pt2Program program;
  program.Input("x", {"2"});
  program.Node(
      "aten.select.int",
      {TensorArg("self", "x"), IntArg("dim", "0"), IntArg("index", "0")},
      "first", {});
  program.Node("aten.gt.Scalar",
               {TensorArg("self", "first"), IntArg("other", "0")}, "p", {}, 12);
  std::vector<std::string> inputs = {Bare(R"({"as_tensor":{"name":"p"}})")};
  inputs.insert(inputs.end(), bodies.begin(), bodies.end());
  inputs.push_back(Bare(R"({"as_tensors":)" + operands + "}"));
  program.Node("higher_order.cond", inputs, "y", {"2"});
  program.Output("y");
  return program;
}

TEST(ImportPt2, ABranchRunsWhenItsConditionHolds) {
  const Pt2Program program =
      Branch({Body("aten.neg.default"), Body("aten.square.default")});
  EXPECT_THAT(OutputOf(program, {3, 4}), ElementsAre(-3, -4));
  EXPECT_THAT(OutputOf(program, {-3, 4}), ElementsAre(9, 16));
}

TEST(ImportPt2, BodiesThatDoNotFitTheirNodeAreRefused) {
  const std::string neg = Body("aten.neg.default");
  EXPECT_THAT(ErrorOf(Branch({neg})), HasSubstr("lacks bodies"));
  EXPECT_THAT(ErrorOf(Branch({neg, neg}, "[]")),
              HasSubstr("another number of operands"));
  EXPECT_THAT(ErrorOf(Branch({neg, Body("aten.neg.default", "lost")})),
              HasSubstr("no tensor 'lost'"));
  EXPECT_THAT(ErrorOf(Branch({neg, neg}, R"([{"name":"lost"}])")),
              HasSubstr("no tensor 'lost'"));
  EXPECT_THAT(ErrorOf(Branch({neg, Body("aten.neg_.default")})),
              HasSubstr("changes its operand 'a' in place"));
  ImportReport report;
  EXPECT_FALSE(
      Import(Branch({neg, Body("aten.no_such.default")}), &report).ok());
  ASSERT_EQ(report.unsupported.size(), 1u);
  EXPECT_EQ(report.unsupported[0].op, "aten.no_such.default");
}

TEST(ImportPt2, ALoopWhoseBodyLosesAValueAndAScanOfNothingAreRefused) {
  const std::string neg = Body("aten.neg.default");
  const std::string x = Bare(R"({"as_tensors":[{"name":"x"}]})");
  const std::string none = Bare(R"({"as_tensors":[]})");
  const std::string both =
      Bare(R"({"as_tensors":[{"name":"x"},{"name":"x"}]})");
  const auto error = [](const std::string& target,
                        const std::vector<std::string>& inputs) {
    Pt2Program program;
    program.Input("x", {"2"});
    program.Node(target, inputs, "y", {"2"});
    program.Output("y");
    return ErrorOf(program);
  };
  EXPECT_THAT(error("higher_order.while_loop", {neg, neg, both, none}),
              HasSubstr("another number of values"));
  EXPECT_THAT(error("higher_order.while_loop", {neg, x, none}),
              HasSubstr("lacks bodies"));
  EXPECT_THAT(error("higher_order.scan", {neg, x, none, none}),
              HasSubstr("no list"));
  EXPECT_THAT(error("higher_order.scan", {neg, x, x, none}),
              HasSubstr("another number of operands"));
  EXPECT_THAT(error("higher_order.map_impl", {neg, none, x}),
              HasSubstr("no list"));
  EXPECT_THAT(error("higher_order.map_impl", {neg}), HasSubstr("lacks bodies"));
}

TEST(ImportPt2, OfEffectsOnlyPrintingIsLeftOut) {
  const auto program = [](const std::string& effect) {
    Pt2Program made;
    made.Token("before");
    made.Input("x", {"2"});
    made.Node("higher_order.with_effects",
              {Bare(R"({"as_tensor":{"name":"before"}})"),
               Bare(R"({"as_operator":"torch.ops.)" + effect + "\"}"),
               Bare(R"({"as_string":"hello"})")},
              "after", {"0"});
    made.TokenOut("after");
    made.Node("aten.neg.default", {TensorArg("self", "x")}, "y", {"2"});
    made.Output("y");
    return made;
  };
  EXPECT_THAT(OutputOf(program("aten._print.default"), {1, 2}),
              ElementsAre(-1, -2));
  EXPECT_THAT(ErrorOf(program("mine.launch.default")),
              HasSubstr("the effect of 'torch.ops.mine.launch.default'"));
}

TEST(ImportPt2, AChangeThroughAViewIsSeenByWhatItLooksAt) {
  Pt2Program program;  // y = x + 0; y[1:3].fill_(9); return y
  program.Input("x", {"4"});
  program.Node("aten.add.Tensor",
               {TensorArg("self", "x"), IntArg("other", "0")}, "y", {"4"});
  program.Node("aten.slice.Tensor",
               {TensorArg("self", "y"), IntArg("dim", "0"),
                IntArg("start", "1"), IntArg("end", "3")},
               "part", {"2"});
  program.Node("aten.fill_.Scalar",
               {TensorArg("self", "part"), IntArg("value", "9")}, "filled",
               {"2"});
  program.Output("y");
  EXPECT_THAT(OutputOf(program, {1, 2, 3, 4}), ElementsAre(1, 9, 9, 4));
}

TEST(ImportPt2, AViewTakenBeforeAChangeSeesIt) {
  Pt2Program program;  // y = x + 0; v = y.view(2, 2); y.mul_(2); return v
  program.Input("x", {"4"});
  program.Node("aten.add.Tensor",
               {TensorArg("self", "x"), IntArg("other", "0")}, "y", {"4"});
  program.Node("aten.view.default",
               {TensorArg("self", "y"), IntsArg("size", "[2,2]")}, "v",
               {"2", "2"});
  program.Node("aten.mul_.Tensor",
               {TensorArg("self", "y"), FloatArg("other", "2.0")}, "z", {"4"});
  program.Output("v");
  EXPECT_THAT(OutputOf(program, {1, 2, 3, 4}), ElementsAre(2, 4, 6, 8));
}

TEST(ImportPt2, ACopyTakenBeforeAChangeDoesNotSeeIt) {
  Pt2Program program;  // y = x + 0; c = y.clone(); y.mul_(2); return c
  program.Input("x", {"2"});
  program.Node("aten.add.Tensor",
               {TensorArg("self", "x"), IntArg("other", "0")}, "y", {"2"});
  program.Node("aten.clone.default", {TensorArg("self", "y")}, "c", {"2"});
  program.Node("aten.mul_.Tensor",
               {TensorArg("self", "y"), FloatArg("other", "2.0")}, "z", {"2"});
  program.Output("c");
  EXPECT_THAT(OutputOf(program, {1, 2}), ElementsAre(1, 2));
}

TEST(ImportPt2, ReshapeOfWhatLiesTransposedIsACopy) {
  // y = x.view(2, 2) + 0; r = y.t().reshape(4); r.fill_(0); return y
  Pt2Program program;
  program.Input("x", {"4"});
  program.Node("aten.view.default",
               {TensorArg("self", "x"), IntsArg("size", "[2,2]")}, "v",
               {"2", "2"});
  program.Node("aten.add.Tensor",
               {TensorArg("self", "v"), IntArg("other", "0")}, "y", {"2", "2"});
  // The helper writes dense strides: the true ones are put in by hand.
  program.Node("aten.t.default", {TensorArg("self", "y")}, "t", {"2", "2"});
  program.Node("aten.reshape.default",
               {TensorArg("self", "t"), IntsArg("shape", "[4]")}, "r", {"4"});
  program.Node("aten.fill_.Scalar",
               {TensorArg("self", "r"), IntArg("value", "0")}, "f", {"4"});
  program.Output("y");
  std::string json = program.Json();
  const size_t t = json.find("\"t\":{");
  const size_t strides = json.find("\"strides\":[", t) + 11;
  json.replace(strides, json.find(']', strides) - strides,
               R"({"as_int":1},{"as_int":2})");
  const auto graph =
      pt2::ImportPt2Bytes(AsBytes(program.Archive(json)), nullptr, {});
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<Tensor> inputs;
  inputs.push_back(
      Tensor::From<float>(DType::kF32, {4}, std::vector<float>{1, 2, 3, 4}));
  const auto outputs = Interpret(*graph, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_THAT(std::span((*outputs)[0].data<float>(), 4),
              ElementsAre(1, 2, 3, 4));
}

TEST(ImportPt2, AnIntegerTimesARealIsReal) {
  Pt2Program program;
  program.Input("x", {"2"});
  program.Node("aten.to.dtype", {TensorArg("self", "x")}, "i", {"2"}, 5);
  program.Node("aten.mul.Tensor",
               {TensorArg("self", "i"), FloatArg("other", "0.5")}, "y", {"2"});
  program.Output("y");
  EXPECT_THAT(OutputOf(program, {3, 4}), ElementsAre(1.5f, 2));
}

TEST(ImportPt2, AMeanOfWhatIsScatteredCountsTheOperandOrNot) {
  for (const bool with_own : {true, false}) {
    Pt2Program program;
    program.Input("x", {"4"});
    program.Node("aten.add.Tensor",
                 {TensorArg("self", "x"), IntArg("other", "10")}, "source",
                 {"4"});
    program.Node("aten.zeros_like.default", {TensorArg("self", "x")}, "zeros",
                 {"4"});
    program.Node("aten.to.dtype", {TensorArg("self", "zeros")}, "index", {"4"},
                 5);
    program.Node("aten.scatter_reduce.two",
                 {TensorArg("self", "x"), IntArg("dim", "0"),
                  TensorArg("index", "index"), TensorArg("src", "source"),
                  Arg("reduce", R"({"as_string":"mean"})"),
                  Arg("include_self", with_own ? R"({"as_bool":true})"
                                               : R"({"as_bool":false})")},
                 "y", {"4"});
    program.Output("y");
    // Four updates, 11 to 14, meet the 1.
    EXPECT_THAT(OutputOf(program, {1, 2, 3, 4}),
                ElementsAre(with_own ? 51.0f / 5 : 50.0f / 4, 2, 3, 4));
  }
}

TEST(ImportPt2, AHistogramCountsItsUpperBoundAndNothingBeyondIt) {
  Pt2Program program;
  program.Input("x", {"4"});
  program.Node("aten.histc.default",
               {TensorArg("self", "x"), IntArg("bins", "4"), IntArg("min", "0"),
                IntArg("max", "2")},
               "y", {"4"});
  program.Output("y");
  EXPECT_THAT(OutputOf(program, {0, 2, 2.1f, 0.7f}), ElementsAre(1, 1, 0, 1));
}

TEST(ImportPt2, DifferencesReachIntoWhatIsPutBefore) {
  Pt2Program program;
  program.Input("x", {"4"});
  program.Node("aten.slice.Tensor",
               {TensorArg("self", "x"), IntArg("dim", "0"),
                IntArg("start", "3"), IntArg("end", "4")},
               "last", {"1"});
  program.Node("aten.diff.default",
               {TensorArg("self", "x"), TensorArg("prepend", "last")}, "y",
               {"4"});
  program.Output("y");
  EXPECT_THAT(OutputOf(program, {1, 3, 6, 10}), ElementsAre(-9, 2, 3, 4));
}

TEST(ImportPt2, EvenNumbersReachFromATensorToANumber) {
  Pt2Program program;
  program.Input("x", {"4"});
  program.Node("aten.sum.default", {TensorArg("self", "x")}, "from", {});
  program.Node("aten.linspace.Tensor_Scalar",
               {TensorArg("start", "from"), FloatArg("end", "4.0"),
                IntArg("steps", "4")},
               "y", {"4"});
  program.Output("y");
  EXPECT_THAT(OutputOf(program, {1, 3, 2, 10}), ElementsAre(16, 12, 8, 4));
}

TEST(ImportPt2, WeightsAreReadByTheirStrides) {
  Pt2Program program;  // [[1, 2], [3, 4]] lies column by column, behind a 0
  program.Input("x", {"2", "2"});
  program.Weight("w", {"2", "2"}, {0, 1, 3, 2, 4},
                 R"([{"as_int":1},{"as_int":2}])", 1);
  program.Node("aten.relu.default", {TensorArg("self", "w")}, "y", {"2", "2"});
  program.Output("y");
  const auto graph = Import(program);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Make(DType::kF32, {2, 2}));
  const auto outputs = Interpret(*graph, inputs);
  ASSERT_TRUE(outputs.ok());
  EXPECT_THAT(std::span((*outputs)[0].data<float>(), 4),
              ElementsAre(1, 2, 3, 4));
}

TEST(ImportPt2, AWeightBeyondItsFileIsRefused) {
  Pt2Program program;
  program.Weight("w", {"2", "2"}, {1, 2, 3}, R"([{"as_int":2},{"as_int":1}])");
  program.Output("w");
  EXPECT_THAT(ErrorOf(program), HasSubstr("reaches over 4 elements"));
}

TEST(ImportPt2, AllThatIsNotSupportedIsReported) {
  Pt2Program program;
  program.Input("x", {"2"});
  program.Node("aten.no_such.default", {TensorArg("self", "x")}, "a", {"2"});
  program.Node("aten.relu.default", {TensorArg("self", "a")}, "b", {"2"});
  program.Node("aten.randn_like.default", {TensorArg("self", "x")}, "c", {"2"});
  program.Output("b");
  ImportReport report;
  const auto graph = Import(program, &report);
  EXPECT_EQ(graph.status().code(), StatusCode::kUnimplemented);
  ASSERT_EQ(report.unsupported.size(), 2u);
  EXPECT_EQ(report.unsupported[0].op, "aten.no_such.default");
  EXPECT_EQ(report.unsupported[0].inputs, "x FP32 [2]");
  EXPECT_THAT(report.unsupported[1].why, HasSubstr("random"));
}

TEST(ImportPt2, AChangeOfAWeightIsRefused) {
  Pt2Program program;
  program.Input("x", {"1"});
  program.Weight("w", {"1"}, {1}, R"([{"as_int":1}])");
  program.Node("aten.add_.Tensor",
               {TensorArg("self", "w"), TensorArg("other", "x")}, "y", {"1"});
  program.Output("y");
  EXPECT_THAT(ErrorOf(program), HasSubstr("state is not kept"));
}

TEST(ImportPt2, OtherVersionsAndFormatsAreRefusedByName) {
  Pt2Program program;
  program.Input("x", {"1"});
  program.Output("x");
  EXPECT_EQ(ErrorOf(program), "");
  program.major = "9";
  EXPECT_THAT(ErrorOf(program), HasSubstr("schema version 9"));
  program.major = "8";
  program.format = "pt3";
  EXPECT_THAT(ErrorOf(program), HasSubstr("format 'pt3'"));
}

TEST(ImportPt2, ANameGivenTwiceIsRefused) {
  Pt2Program program;
  program.Input("x", {"1"});
  program.Node("aten.relu.default", {TensorArg("self", "x")}, "y", {"1"});
  program.RawNode("aten.relu.default", {TensorArg("self", "y")},
                  R"({"as_tensor":{"name":"x"}})");
  program.Output("y");
  EXPECT_THAT(ErrorOf(program), HasSubstr("there is a tensor 'x' already"));
}

}  // namespace
}  // namespace millrace::models::graph
