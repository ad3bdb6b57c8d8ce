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

TEST(TreeEnsemble, KernelsComparePreciselyAtTheThreshold) {
  auto trees = FlattenTrees(Stump());
  ASSERT_TRUE(trees.ok()) << trees.status().ToString();
  ASSERT_NE((*trees)->packed, nullptr);
  const std::vector<float> x = {std::nextafter(2.0F, 0.0F), 2.0F,
                                std::nextafter(2.0F, 3.0F), NAN, -INFINITY};
  const std::vector<double> want = {10, 20, 20, 20, 10};
  std::vector<int32_t> leaves(kTreeBlock * x.size());
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    if (std::string(isa) == "avx512" && !__builtin_cpu_supports("avx512f")) {
      continue;
    }
    std::vector<double> sums(x.size());
    SumTrees(**trees, WalkTreesOf(isa), x.data(), 1,
             static_cast<int64_t>(x.size()), leaves.data(), sums.data());
    EXPECT_EQ(sums, want) << isa;
  }
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
