// Convolutions, pools and what surrounds them, planned with channels last.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints = std::vector<int64_t>;

struct ConvCase {
  Shape x;
  Shape w;
  Attrs attrs;
};

class PlanConv : public testing::TestWithParam<ConvCase> {};

TEST_P(PlanConv, GivesWhatTheInterpreterGives) {
  const ConvCase& c = GetParam();
  GraphMaker m;
  const ValueId x = m.Input(c.x);
  ValueId y = m.Node("Conv", {x, m.Weight(c.w), m.Weight({c.w[0]})}, c.attrs);
  m.graph.AddOutput("y", m.Node("Relu", {y}));
  const std::string plan = m.ExpectSame();
  EXPECT_NE(plan.find(", kernel"), std::string::npos) << plan;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PlanConv,
    testing::Values(
        ConvCase{{2, 3, 17, 19}, {8, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
        ConvCase{{1, 16, 9, 9}, {40, 16, 1, 1}, {}},
        ConvCase{{3, 5, 15, 12},
                 {7, 5, 5, 3},
                 {{"strides", Ints{2, 3}},
                  {"pads", Ints{2, 0, 1, 1}},
                  {"dilations", Ints{1, 2}}}},
        ConvCase{{2, 12, 8, 8},
                 {18, 4, 3, 3},
                 {{"group", int64_t{3}}, {"pads", Ints{1, 1, 1, 1}}}},
        ConvCase{{2, 24, 10, 10},
                 {24, 1, 3, 3},
                 {{"group", int64_t{24}},
                  {"strides", Ints{2, 2}},
                  {"pads", Ints{1, 1, 1, 1}}}},
        ConvCase{{1, 6, 10, 10},
                 {12, 1, 5, 5},
                 {{"group", int64_t{6}}, {"auto_pad", "SAME_UPPER"}}},
        ConvCase{{1, 6, 10, 10},
                 {12, 6, 3, 3},
                 {{"auto_pad", "VALID"}, {"pads", Ints{1, 1, 1, 1}}}},
        ConvCase{{2, 4, 50}, {6, 4, 9}, {{"strides", Ints{4}}}},
        ConvCase{{2, 8, 31},
                 {8, 1, 9},
                 {{"group", int64_t{8}},
                  {"dilations", Ints{2}},
                  {"pads", Ints{8, 8}}}}));

// Large enough for Winograd's way, of odd sizes, read from and written to a
// part of wider images.
void AddWinogradBlock(GraphMaker& m, const Shape& x_shape) {
  const Attrs same = {{"pads", Ints{1, 1, 1, 1}}};
  const ValueId x = m.Input(x_shape);
  ValueId y =
      m.Node("Conv", {x, m.Weight({40, 32, 3, 3}), m.Weight({40})}, same);
  y = m.Node("Relu", {y});
  const ValueId z = m.Node("Conv", {y, m.Weight({32, 40, 3, 3})}, same);
  y = m.Node("Relu", {m.Node("Add", {z, x})});
  m.graph.AddOutput("y", m.Node("Concat", {y, x}, {{"axis", int64_t{1}}}));
}

TEST(PlanImage, WinogradsWayGivesWhatTheInterpreterGives) {
  GraphMaker m;
  AddWinogradBlock(m, {2, 32, 15, 17});
  const std::string plan = m.ExpectSame();
  EXPECT_EQ(Count(plan, "Winograd"), 2) << plan;
}

TEST(PlanImage, WinogradsWayGivesARowTheSameBitsInEveryBatch) {
  constexpr int64_t kRows = 3;
  const int last = std::thread::hardware_concurrency() > 1 ? 1 : 0;
  GraphMaker m;
  AddWinogradBlock(m, {kRows, 32, 14, 21});
  const Tensor& all = m.Inputs()[0];
  const int64_t each = all.num_elements() / kRows;
  std::vector<float> want;
  for (const config::CpuSet& cpus : {config::CpuSet{}, {0, last}}) {
    InstanceOptions options;
    options.cpus = cpus;
    auto context = CreateInstance(m.graph.Copy(), options);
    ASSERT_TRUE(context.ok()) << context.status().ToString();
    const auto values = [&](const std::vector<Tensor>& inputs) {
      const StatusOr<std::vector<Tensor>> got = (*context)->Run(inputs);
      if (!got.ok()) return std::vector<float>();
      const float* y = got->front().data<float>();
      return std::vector<float>(y, y + got->front().num_elements());
    };
    const std::vector<float> whole = values(m.Inputs());
    if (want.empty()) want = whole;
    ASSERT_EQ(whole, want);
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<Tensor> one;
      one.push_back(Tensor::Make(DType::kF32, {1, 32, 14, 21}));
      std::copy_n(all.data<float>() + row * each, each, one[0].data<float>());
      const std::vector<float> alone = values(one);
      ASSERT_EQ(alone.size(), whole.size() / kRows);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                             whole.begin() + row * 2 * each));
    }
  }
}

TEST(PlanImage, AResidualBlockIsThreeSteps) {
  GraphMaker m;
  const ValueId x = m.Input({2, 16, 12, 12});
  const Attrs same = {{"pads", Ints{1, 1, 1, 1}}};
  ValueId y = m.Node("Conv", {x, m.Weight({8, 16, 1, 1})});
  y = m.Node("Relu", {y});
  y = m.Node("Conv", {y, m.Weight({8, 8, 3, 3})}, same);
  y = m.Node("Relu", {y});
  y = m.Node("Conv", {y, m.Weight({16, 8, 1, 1})});
  y = m.Node("Relu", {m.Node("Add", {y, x})});
  y = m.Node("GlobalAveragePool", {y});
  m.graph.AddOutput("y", m.Node("Flatten", {y}));
  const std::string plan = m.ExpectSame();
  // The input is turned once; the pool's result needs no turning.
  EXPECT_EQ(std::count(plan.begin(), plan.end(), '\n'), 5) << plan;
}

TEST(PlanImage, ABatchNormalisationJoinsTheWeights) {
  GraphMaker m;
  const ValueId x = m.Input({1, 3, 9, 9});
  Tensor variance = m.Random({4});
  for (int i = 0; i < 4; ++i) {
    variance.data<float>()[i] = std::abs(variance.data<float>()[i]) + 0.1f;
  }
  const ValueId var = m.graph.AddConstant("var", std::move(variance));
  ValueId y = m.Node("Conv", {x, m.Weight({4, 3, 3, 3})});
  y = m.Node("BatchNormalization",
             {y, m.Weight({4}), m.Weight({4}), m.Weight({4}), var});
  m.graph.AddOutput("y", y);
  const std::string plan = m.ExpectSame(1e-4);
  EXPECT_EQ(plan.find("BatchNorm"), std::string::npos) << plan;
}

TEST(PlanImage, PoolsAndConcatenationStayChannelsLast) {
  GraphMaker m;
  const ValueId x = m.Input({2, 6, 13, 13});
  const Attrs window = {{"kernel_shape", Ints{3, 3}},
                        {"strides", Ints{2, 2}},
                        {"pads", Ints{1, 1, 1, 1}}};
  const ValueId a = m.Node("MaxPool", {x}, window);
  const ValueId b = m.Node("AveragePool", {x}, window);
  const ValueId c =
      m.Node("Conv", {m.Node("Concat", {a, b}, {{"axis", int64_t{1}}}),
                      m.Weight({5, 12, 1, 1})});
  m.graph.AddOutput("y", c);
  m.ExpectSame();
}

TEST(PlanImage, AnAverageDividesByWhatItIsToldTo) {
  GraphMaker m;
  const ValueId x = m.Input({1, 4, 8, 8});
  m.graph.AddOutput("y", m.Node("AveragePool", {x},
                                {{"kernel_shape", Ints{2, 2}},
                                 {"strides", Ints{2, 2}},
                                 {"divisor_override", int64_t{3}}}));
  (void)m.ExpectSame();
}

TEST(PlanImage, PoolsMayHaveWindowsLargerThanTheImage) {
  for (const int64_t with_pads : {0, 1}) {
    GraphMaker m;
    const ValueId y =
        m.Node("Conv", {m.Input({2, 6, 3, 2}), m.Weight({5, 6, 1, 1})});
    m.graph.AddOutput("y", m.Node("AveragePool", {y},
                                  {{"kernel_shape", Ints{40, 40}},
                                   {"strides", Ints{40, 40}},
                                   {"ceil_mode", int64_t{1}},
                                   {"count_include_pad", with_pads}}));
    m.ExpectSame();
  }
}

TEST(PlanImage, TransposedConvolutionsSideBySideAreOneStep) {
  GraphMaker m;
  ValueId y =
      m.Node("ConvTranspose",
             {m.Input({2, 5, 6, 7}), m.Weight({5, 9, 2, 3}), m.Weight({9})},
             {{"strides", Ints{2, 3}}});
  m.graph.AddOutput("y", y);
  y = m.Node("ConvTranspose", {m.Input({2, 5, 6}), m.Weight({5, 3, 4})},
             {{"strides", Ints{4}}});
  m.graph.AddOutput("z", y);
  const std::string plan = m.ExpectSame();
  EXPECT_NE(plan.find("ConvTranspose 2 x 6x7x5 -> 12x21x9"), plan.npos) << plan;
}

TEST(PlanImage, TransposedConvolutionsThatOverlapAreOneForEachPhase) {
  struct Case {
    std::vector<int64_t> kernel, strides, pads, output_padding;
  };
  for (const Case& c : {Case{{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
                        Case{{4, 4}, {2, 2}, {1, 1, 1, 1}, {0, 0}},
                        Case{{3, 5}, {1, 2}, {2, 0, 0, 3}, {0, 1}},
                        Case{{5, 2}, {5, 2}, {0, 0, 1, 0}, {0, 0}},
                        Case{{7, 3}, {3, 1}, {4, 2, 4, 2}, {2, 0}}}) {
    for (const int64_t groups : {1, 2}) {
      GraphMaker m;
      const ValueId weight = m.Weight({6, 8, c.kernel[0], c.kernel[1]});
      m.graph.AddOutput(
          "y", m.Node("ConvTranspose",
                      {m.Input({2, 6, 9, 20}), weight, m.Weight({8 * groups})},
                      {{"strides", c.strides},
                       {"pads", c.pads},
                       {"output_padding", c.output_padding},
                       {"group", groups}}));
      const std::string plan = m.ExpectSame();
      EXPECT_NE(plan.find("phases"), plan.npos) << plan;
    }
  }
}

// Of the odd element of all padding the begin has it, or with SAME_UPPER the
// end.
TEST(PlanImage, TransposedConvolutionsOfAnAskedSizeAreCutAsTheOperatorCuts) {
  for (const int64_t kernel : {3, 4}) {
    for (const Attrs& attrs :
         {Attrs{{"output_shape", Ints{18, 40}}},
          Attrs{{"output_shape", Ints{18, 40}},
                {"output_padding", Ints{1, 0}},
                {"pads", Ints{1, 1, 1, 1}}},
          Attrs{{"output_shape", Ints{19, 41}}, {"auto_pad", "SAME_UPPER"}},
          Attrs{{"auto_pad", "SAME_UPPER"}, {"output_padding", Ints{1, 1}}},
          Attrs{{"auto_pad", "SAME_LOWER"}, {"output_padding", Ints{0, 1}}},
          Attrs{{"auto_pad", "VALID"}, {"pads", Ints{1, 0, 0, 1}}}}) {
      GraphMaker m;
      const ValueId weight = m.Weight({6, 8, kernel, kernel});
      Attrs all = attrs;
      all.Set("strides", Ints{2, 2});
      m.graph.AddOutput(
          "y", m.Node("ConvTranspose", {m.Input({2, 6, 9, 20}), weight}, all));
      const std::string plan = m.ExpectSame();
      EXPECT_NE(plan.find("phases"), plan.npos) << plan;
    }
  }
}

TEST(PlanImage, TransposedConvolutionsOfSignalsAndOfTinyResultsHavePhasesToo) {
  for (const int64_t length : {1, 2, 50}) {
    GraphMaker m;
    m.graph.AddOutput(
        "y",
        m.Node("ConvTranspose", {m.Input({2, 5, length}), m.Weight({5, 3, 16})},
               {{"strides", Ints{8}}, {"pads", Ints{4, 4}}}));
    m.graph.AddOutput(
        "z",
        m.Node("ConvTranspose", {m.Input({1, 5, length}), m.Weight({5, 3, 6})},
               {{"strides", Ints{4}}, {"pads", Ints{2, 3}}}));
    EXPECT_NE(m.ExpectSame().find("8 phases"), std::string::npos);
  }
}

TEST(PlanImage, TransposedConvolutionsTakeAlongWhatStandsBehindThem) {
  for (const int64_t kernel : {2, 4}) {
    GraphMaker m;
    ValueId y = m.Node(
        "ConvTranspose",
        {m.Input({2, 6, 9, 11}), m.Weight({6, 8, kernel, kernel}),
         m.Weight({8})},
        {{"strides", Ints{2, 2}}, {"pads", Ints(4, kernel == 4 ? 1 : 0)}});
    y = m.Node("Relu", {y});
    y = m.Node("Mul", {y, m.Input({2, 8, 18, 22})});
    y = m.Node("Add", {y, m.Input({2, 8, 18, 22})});
    m.graph.AddOutput("y", y);
    const std::string plan = m.ExpectSame();
    EXPECT_NE(plan.find("+bias relu *gate +residual"), plan.npos) << plan;
  }
}

TEST(PlanImage, ConvolutionsOfVolumesAreSumsOfThoseOfImages) {
  struct Case {
    Shape input, weight;
    int64_t group;
    std::vector<int64_t> strides, dilations, pads;
  };
  const std::vector<Case> cases = {
      {{2, 3, 5, 8, 9}, {20, 3, 3, 3, 3}, 1, {1, 2, 2}, {1, 1, 1}, Ints(6, 1)},
      {{1, 6, 4, 7, 6},
       {8, 3, 3, 1, 1},
       2,
       {1, 1, 1},
       {1, 1, 1},
       {1, 0, 0, 1, 0, 0}},
      {{1, 4, 7, 6, 5},
       {5, 4, 2, 3, 2},
       1,
       {2, 1, 1},
       {3, 2, 1},
       {2, 1, 0, 0, 1, 1}},
      // Frames of the result that lie in the padding alone.
      {{1, 4, 2, 6, 5},
       {5, 4, 2, 3, 2},
       1,
       {1, 1, 1},
       {1, 1, 1},
       {3, 1, 0, 3, 1, 1}},
      {{2, 40, 5, 8, 9},
       {40, 1, 3, 3, 3},
       40,
       {1, 2, 1},
       {1, 1, 1},
       Ints(6, 1)},
      {{1, 20, 1, 4, 4},
       {20, 1, 3, 3, 3},
       20,
       {1, 1, 1},
       {1, 1, 1},
       {2, 1, 1, 2, 1, 1}},
      // Frames of several blocks.
      {{1, 2, 3, 70, 80},
       {40, 2, 2, 3, 3},
       1,
       {1, 1, 1},
       {1, 1, 1},
       Ints(6, 1)},
      {{1, 40, 2, 70, 80},
       {40, 1, 2, 3, 3},
       40,
       {1, 1, 1},
       {1, 1, 1},
       Ints(6, 1)}};
  for (const Case& c : cases) {
    for (const bool behind : {false, true}) {
      GraphMaker m;
      ValueId y = m.Node(
          "Conv",
          {m.Input(c.input), m.Weight(c.weight), m.Weight({c.weight[0]})},
          {{"strides", c.strides},
           {"dilations", c.dilations},
           {"pads", c.pads},
           {"group", c.group}});
      if (behind) {
        y = m.Node("Relu", {y});
        y = m.Node("Add", {y, y});
      }
      m.graph.AddOutput("y", y);
      const std::string plan = m.ExpectSame();
      EXPECT_NE(plan.find("Volume"), plan.npos) << plan;
      EXPECT_EQ(plan.find("+bias relu") != plan.npos, behind) << plan;
    }
  }
}

TEST(PlanImage, AVolumeMayHaveNoOutputs) {
  GraphMaker m;
  m.graph.AddOutput("y", m.Node("Conv", {m.Input({1, 3, 4, 5, 6}),
                                         m.Weight({0, 3, 3, 3, 3})}));
  m.ExpectSame();
}

TEST(PlanImage, TransposedConvolutionsWithHolesStayAsTheyAre) {
  for (const auto& [strides, dilations] :
       {std::pair{Ints{3, 3}, Ints{1, 1}}, std::pair{Ints{1, 1}, Ints{2, 1}}}) {
    GraphMaker m;
    m.graph.AddOutput(
        "y",
        m.Node("ConvTranspose", {m.Input({2, 5, 6, 7}), m.Weight({5, 9, 2, 2})},
               {{"strides", strides}, {"dilations", dilations}}));
    const std::string plan = m.ExpectSame();
    EXPECT_EQ(plan.find("phases"), plan.npos) << plan;
  }
}

TEST(PlanImage, GroupsAndInstancesAreNormalisedChannelsLast) {
  for (const int64_t groups : {1, 4, 24}) {
    GraphMaker m;
    const ValueId x = m.Input({2, 24, 5, 6});
    m.graph.AddOutput(
        "y", m.Node("GroupNormalization", {x, m.Weight({24}), m.Weight({24})},
                    {{"num_groups", groups}, {"epsilon", 1e-3}}));
    m.graph.AddOutput(
        "z", m.Node("InstanceNormalization",
                    {m.Input({3, 20, 9}), m.Weight({20}), m.Weight({20})}));
    const std::string plan = m.ExpectSame();
    EXPECT_NE(plan.find("GroupNorm 2 x 30 x 24"), plan.npos) << plan;
  }
}

TEST(PlanImage, ImagesAreResizedChannelsLast) {
  for (const std::string mode : {"nearest", "linear", "cubic"}) {
    for (const std::string coordinates :
         {"half_pixel", "asymmetric", "align_corners"}) {
      GraphMaker m;
      const ValueId x = m.Input({2, 5, 6, 7});
      const ValueId sizes = m.Ints({2, 5, 11, 4});
      m.graph.AddOutput(
          "y", m.Node("Resize", {x, kNoValue, kNoValue, sizes},
                      {{"mode", mode},
                       {"coordinate_transformation_mode", coordinates}}));
      const std::string plan = m.ExpectSame();
      EXPECT_NE(plan.find("Resize [2, 6, 7, 5]"), plan.npos) << plan;
    }
  }
}

// By sizes, which name the channels, and by scales.
TEST(PlanImage, ALayerOfSinglePixelsComesBeforeTheirCopies) {
  for (const bool by_sizes : {true, false}) {
    GraphMaker m;
    ValueId x = m.Input({2, 5, 6, 7});
    Tensor scales = Tensor::Make(DType::kF32, {4});
    for (int i = 0; i < 4; ++i) scales.data<float>()[i] = i < 2 ? 1.0f : 2.0f;
    const ValueId by = m.graph.AddConstant("scales", std::move(scales));
    x = m.Node("Resize",
               by_sizes ? std::vector<ValueId>{x, kNoValue, kNoValue,
                                               m.Ints({2, 5, 11, 16})}
                        : std::vector<ValueId>{x, kNoValue, by},
               {{"mode", std::string("nearest")},
                {"coordinate_transformation_mode", std::string("asymmetric")}});
    x = m.Node("Relu",
               {m.Node("Conv", {x, m.Weight({9, 5, 1, 1}), m.Weight({9})})});
    m.graph.AddOutput("y", m.Node("Conv", {x, m.Weight({4, 9, 3, 3})}));
    const std::string plan = m.ExpectSame();
    EXPECT_NE(plan.find("Conv 2 x 6x7x5 -> 6x7x9"), plan.npos) << plan;
    EXPECT_NE(plan.find("Resize [2, 6, 7, 9]"), plan.npos) << plan;
  }
}

TEST(PlanImage, ALayerOfSinglePixelsStaysBehindMixedOrFewerOnes) {
  for (const std::string mode : {"nearest", "linear"}) {
    GraphMaker m;
    const int64_t width = mode == "linear" ? 16 : 3;
    ValueId x = m.Node(
        "Resize",
        {m.Input({1, 5, 6, 7}), kNoValue, kNoValue, m.Ints({1, 5, 6, width})},
        {{"mode", mode}});
    m.graph.AddOutput("y", m.Node("Conv", {x, m.Weight({9, 5, 1, 1})}));
    const std::string plan = m.ExpectSame();
    EXPECT_NE(plan.find("Resize [1, 6, 7, 5]"), plan.npos) << plan;
  }
}

}  // namespace
}  // namespace millrace::models::graph
