// Tabular models of tests/data/tabular give what ONNX Runtime gave
// (tests/data/make_tabular.py): planned and interpreted.
//
// Tolerance: 1e-5 of the largest value, as promised for such models; sums are
// added in FP64 and rounded once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "models/files/npz.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/ml/op_data.h"
#include "models/graph/ml/tree_ensemble.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

constexpr char kFolder[] = "tests/data/tabular";

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  std::error_code none;  // of a list of tests, asked for elsewhere
  for (const auto& file : std::filesystem::directory_iterator(kFolder, none)) {
    if (file.path().extension() == ".onnx") names.push_back(file.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void ExpectClose(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.dtype(), want.dtype());
  ASSERT_EQ(got.shape(), want.shape());
  const int64_t n = want.num_elements();
  if (want.dtype() == kString) {
    EXPECT_TRUE(std::ranges::equal(StringsIn(got), StringsIn(want)));
    return;
  }
  if (want.dtype() == DType::kI64) {
    EXPECT_TRUE(std::equal(got.data<int64_t>(), got.data<int64_t>() + n,
                           want.data<int64_t>()));
    return;
  }
  ASSERT_EQ(want.dtype(), DType::kF32);
  float size = 1;
  for (int64_t i = 0; i < n; ++i) {
    size = std::max(size, std::abs(want.data<float>()[i]));
  }
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_NEAR(got.data<float>()[i], want.data<float>()[i], 1e-5F * size)
        << "element " << i;
  }
}

class Tabular : public testing::TestWithParam<std::string> {};

TEST_P(Tabular, AgreesWithOnnxRuntime) {
  const std::string stem = std::string(kFolder) + "/" + GetParam();
  auto arrays = ReadNpz(stem + ".npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
  for (const bool interpret : {true, false}) {
    SCOPED_TRACE(interpret ? "interpreted" : "planned");
    auto graph = ImportGraph(stem + ".onnx", nullptr);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    InstanceOptions options;
    options.interpret = interpret;
    auto context = CreateInstance(std::move(*graph), options);
    ASSERT_TRUE(context.ok()) << context.status().ToString();
    std::vector<Tensor> inputs;
    for (const NamedTensor& array : *arrays) {
      if (array.name.starts_with("in_")) inputs.push_back(array.tensor.Share());
    }
    auto outputs = (*context)->Run(inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    for (size_t i = 0; i < outputs->size(); ++i) {
      const std::string name = "out_" + (*context)->outputs()[i].name;
      SCOPED_TRACE(name);
      const auto want = std::find_if(
          arrays->begin(), arrays->end(),
          [&](const NamedTensor& array) { return array.name == name; });
      ASSERT_NE(want, arrays->end());
      ExpectClose((*outputs)[i], want->tensor);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Tabular, testing::ValuesIn(ModelNames()),
                         [](const auto& of) { return of.param; });

// Depth 1: below 2 the leaf of weight 10, else that of 20.
TreeParts Stump() {
  TreeParts parts;
  parts.nodes = {{.mode = TreeMode::kLess, .value = 2, .yes = 1, .no = 2},
                 {.id = 1},
                 {.id = 2}};
  parts.weights = {{0, 1, 0, 10}, {0, 2, 0, 20}};
  return parts;
}

// Kernels of trees that this CPU runs.
std::vector<const char*> TreeIsas() {
  std::vector<const char*> isas = {"scalar"};
#if defined(__x86_64__)
  isas.push_back("avx2");
  if (__builtin_cpu_supports("avx512f")) isas.push_back("avx512");
#endif
  return isas;
}

TEST(TreeEnsemble, KernelsComparePreciselyAtTheThreshold) {
  auto trees = FlattenTrees(Stump());
  ASSERT_TRUE(trees.ok()) << trees.status().ToString();
  ASSERT_NE((*trees)->packed, nullptr);
  const std::vector<float> x = {std::nextafter(2.0F, 0.0F), 2.0F,
                                std::nextafter(2.0F, 3.0F), NAN, -INFINITY};
  const std::vector<double> want = {10, 20, 20, 20, 10};
  std::vector<int32_t> leaves(kTreeBlock * x.size());
  for (const char* isa : TreeIsas()) {
    std::vector<double> sums(x.size());
    SumTrees(**trees, WalkTreesOf(isa), x.data(), 1,
             static_cast<int64_t>(x.size()), leaves.data(), sums.data());
    EXPECT_EQ(sums, want) << isa;
  }
}

// Trees that lean to one side, with a leaf at each level, and rows with NaN.
// One row, a few and a block are walked in ways of their own.
TEST(TreeEnsemble, FewRowsEndAtTheLeavesOfMany) {
  constexpr int64_t kTrees = 21;  // of which some are no whole group
  constexpr int64_t kRows = 20;
  constexpr int64_t kFeatures = 5;
  for (const int64_t depth : {1, 3, 8, 9, 40}) {
    TreeParts parts;
    for (int64_t tree = 0; tree < kTrees; ++tree) {
      for (int64_t id = 0; id < depth; ++id) {
        parts.nodes.push_back(
            {.tree = tree,
             .id = id,
             .feature = (tree + id) % kFeatures,
             .mode = TreeMode::kLessOrEqual,
             .value = static_cast<double>((tree + id) % 7) - 3,
             .yes = id + 1,
             .no = depth + 1 + id,
             .nan_is_true = (tree + id) % 3 > 0});
      }
      for (int64_t leaf = depth; leaf <= 2 * depth; ++leaf) {
        parts.nodes.push_back({.tree = tree, .id = leaf});
        parts.weights.push_back(
            {tree, leaf, 0, 0.1 * static_cast<double>(tree * 100 + leaf)});
      }
    }
    auto trees = FlattenTrees(parts);
    ASSERT_TRUE(trees.ok()) << trees.status().ToString();
    ASSERT_NE((*trees)->packed, nullptr);
    std::vector<float> x;
    for (int64_t i = 0; i < kRows * kFeatures; ++i) {
      x.push_back(i % 11 == 0 ? NAN : static_cast<float>(i * 7 % 9) - 4);
    }
    std::vector<int32_t> leaves(kTreeBlock * kRows);
    std::vector<double> want(kRows);
    SumTrees(**trees, WalkTreesOf("scalar"), x.data(), kFeatures, kRows,
             leaves.data(), want.data());
    for (const char* isa : TreeIsas()) {
      for (const int64_t rows : {int64_t{1}, int64_t{3}, kRows}) {
        std::vector<double> sums;
        for (int64_t row = 0; row + rows <= kRows; row += rows) {
          std::vector<double> part(static_cast<size_t>(rows));
          SumTrees(**trees, WalkTreesOf(isa), x.data() + row * kFeatures,
                   kFeatures, rows, leaves.data(), part.data());
          sums.insert(sums.end(), part.begin(), part.end());
        }
        EXPECT_TRUE(std::equal(sums.begin(), sums.end(), want.begin()))
            << isa << ", depth " << depth << ", " << rows << " rows";
      }
    }
  }
}

// Trees of many leaves, each of which has two parents: the packed form copies
// them.
TEST(TreeEnsemble, TheirMemoryIsKnownBeforeTheyAreMade) {
  TreeParts parts;
  for (int64_t tree = 0; tree < 100; ++tree) {
    for (int64_t id = 0; id < 100; ++id) {
      parts.nodes.push_back({.tree = tree,
                             .id = id,
                             .mode = TreeMode::kLess,
                             .value = static_cast<double>(id),
                             .yes = id + 1,
                             .no = 100});
    }
    parts.nodes.push_back({.tree = tree, .id = 100});
    parts.weights.push_back({tree, 100, 0, 1});
  }
  auto trees = FlattenTrees(parts);
  ASSERT_TRUE(trees.ok()) << trees.status().ToString();
  ASSERT_NE((*trees)->packed, nullptr);
  const auto bytes = [](const auto& vector) {
    return static_cast<int64_t>(vector.capacity() * sizeof(vector[0]));
  };
  const TreeEnsemble& made = **trees;
  const PackedTrees& packed = *made.packed;
  const int64_t kept = bytes(made.nodes) + bytes(made.weights) +
                       bytes(packed.nodes) + bytes(packed.weight_begin) +
                       bytes(packed.weight_end) + bytes(packed.leaf_value);
  EXPECT_LE(kept, BytesOfTrees(parts));
  EXPECT_GT(kept, 2 * static_cast<int64_t>(parts.nodes.size() *
                                           sizeof(TreeEnsembleNode)))
      << "the nodes alone are not half of it";
}

// Scratch is that of few rows where each has many sums.
TEST(TreeEnsemble, ManyTargetsTakeLittleScratch) {
  constexpr int64_t kTargets = 1 << 17;  // 1 MiB of sums for a row
  TreeParts parts = Stump();
  parts.num_targets = kTargets;
  auto trees = FlattenTrees(parts);
  ASSERT_TRUE(trees.ok()) << trees.status().ToString();
  Graph graph;
  const int32_t n = graph.AddSymbol("n");
  const ValueId x =
      graph.AddInput("x", DType::kF32, {{.symbol = n}, {.size = 1}});
  const ValueId data = graph.AddConstant("trees", DataTensor(*trees));
  graph.AddOutput("y", graph.AddNode("y", *FindOp("ml.Trees"), {x, data}));
  InstanceOptions options;
  options.rows_apart = false;  // all 64 in one plan
  auto context = CreateInstance(std::move(graph), options);
  ASSERT_TRUE(context.ok()) << context.status().ToString();
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Make(DType::kF32, {64, 1}));
  inputs[0].data<float>()[63] = 5;
  const auto outputs = (*context)->Run(inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ((*outputs)[0].data<float>()[0], 10);
  EXPECT_EQ((*outputs)[0].data<float>()[63 * kTargets], 20);
  EXPECT_NE((*context)->PlanText().find("Trees 1 of 3"), std::string::npos);
  EXPECT_LT((*context)->ArenaBytes(), 4 << 20) << "a MiB of sums, not 64";
}

TEST(TreeEnsemble, CirclesAndMissingNodesAreRefused) {
  TreeParts circle = Stump();
  circle.nodes[1] = {.id = 1, .mode = TreeMode::kLess, .yes = 0, .no = 2};
  EXPECT_EQ(FlattenTrees(circle).status().code(), StatusCode::kInvalidArgument);
  TreeParts missing = Stump();
  missing.nodes[0].no = 7;
  EXPECT_EQ(FlattenTrees(missing).status().code(),
            StatusCode::kInvalidArgument);
  TreeParts target = Stump();
  target.weights[0].target = 1;
  EXPECT_EQ(FlattenTrees(target).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::models::graph
