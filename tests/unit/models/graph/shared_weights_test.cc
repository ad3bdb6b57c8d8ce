// One tensor as the weight of layers that want it in different forms.
#include <gtest/gtest.h>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints = std::vector<int64_t>;

Attrs Groups(int64_t groups) { return {{"group", groups}}; }
Attrs Strides(int64_t stride) { return {{"strides", Ints{stride, stride}}}; }

// Of images and of volumes.
TEST(SharedWeights, ConvolutionsOfOtherGroups) {
  for (const Shape& kernel : {Shape{6, 4, 1, 1}, Shape{6, 4, 2, 1, 1}}) {
    GraphMaker m;
    const ValueId w = m.Weight(kernel);
    for (const int64_t groups : {1, 3, 2}) {
      Shape x = kernel.rank() == 4 ? Shape{1, 0, 5, 5} : Shape{1, 0, 3, 5, 5};
      x[1] = 4 * groups;
      m.graph.AddOutput("y", m.Node("Conv", {m.Input(x), w}, Groups(groups)));
    }
    (void)m.ExpectSame();
  }
}

TEST(SharedWeights, TransposedConvolutionsOfOtherStrides) {
  GraphMaker m;
  const ValueId x = m.Input({1, 4, 5, 5});
  const ValueId w = m.Weight({4, 6, 3, 3});
  for (const int64_t stride : {1, 2, 3}) {
    m.graph.AddOutput("y", m.Node("ConvTranspose", {x, w}, Strides(stride)));
  }
  (void)m.ExpectSame();
}

TEST(SharedWeights, TransposedConvolutionsOfOtherGroups) {
  GraphMaker m;
  const ValueId w = m.Weight({6, 4, 3, 3});
  const ValueId x = m.Input({1, 6, 5, 5});
  for (const int64_t groups : {1, 3}) {
    m.graph.AddOutput("y",
                      m.Node("ConvTranspose", {x, w},
                             {{"group", groups}, {"strides", Ints{2, 2}}}));
  }
  (void)m.ExpectSame();
}

// Of one tensor of three dimensions each makes another matrix.
TEST(SharedWeights, AConvolutionAndARecurrentLayer) {
  GraphMaker m;
  const ValueId w = m.Weight({1, 12, 5});
  const ValueId x = m.Input({1, 12, 9});
  m.graph.AddOutput("y", m.Node("Conv", {x, w}));
  const ValueId steps = m.Input({7, 1, 5});
  const ValueId r = m.Weight({1, 12, 3});
  m.graph.AddOutput(
      "z", m.Node("LSTM", {steps, w, r}, {{"hidden_size", int64_t{3}}}));
  (void)m.ExpectSame();
}

}  // namespace
}  // namespace millrace::models::graph
