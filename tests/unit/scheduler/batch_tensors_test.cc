#include "scheduler/batch_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace millrace::scheduler {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using ::testing::HasSubstr;

Tensor Counting(const Shape& shape, float first) {
  Tensor tensor = Tensor::Make(DType::kF32, shape);
  std::iota(tensor.data<float>(), tensor.data<float>() + tensor.num_elements(),
            first);
  return tensor;
}

std::vector<Tensor> One(Tensor tensor) {
  std::vector<Tensor> tensors;
  tensors.push_back(std::move(tensor));
  return tensors;
}

TEST(BatchTensors, JoinsAndPartsRows) {
  const std::vector<Tensor> a = One(Counting({2, 3}, 0));
  const std::vector<Tensor> b = One(Counting({1, 3}, 6));
  std::vector<Tensor> joined = JoinRows({&a, &b});
  ASSERT_EQ(joined.size(), 1u);
  ASSERT_EQ(joined[0].shape(), (Shape{3, 3}));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(joined[0].data<float>()[i], i);

  auto parts = PartRows(std::move(joined), {2, 1});
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ((*parts)[0][0].shape(), (Shape{2, 3}));
  EXPECT_EQ((*parts)[1][0].shape(), (Shape{1, 3}));
  (*parts)[0].clear();  // a part outlives the others
  EXPECT_EQ((*parts)[1][0].data<float>()[0], 6);
  EXPECT_EQ((*parts)[1][0].data<float>()[2], 8);
}

TEST(BatchTensors, OutputWithoutTheRowsIsAnError) {
  EXPECT_EQ(PartRows(One(Counting({2, 3}, 0)), {2, 1}).status().code(),
            StatusCode::kInternal);
  EXPECT_EQ(PartRows(One(Counting({}, 0)), {1}).status().code(),
            StatusCode::kInternal);
}

TEST(BatchTensors, KindIsTypesAndSizesButForRows) {
  EXPECT_EQ(KindOf(One(Counting({2, 3}, 0))), KindOf(One(Counting({5, 3}, 0))));
  EXPECT_NE(KindOf(One(Counting({2, 3}, 0))), KindOf(One(Counting({2, 4}, 0))));
  EXPECT_NE(KindOf(One(Counting({2, 3}, 0))),
            KindOf(One(Counting({2, 3, 1}, 0))));
  EXPECT_NE(KindOf(One(Counting({2, 3}, 0))),
            KindOf(One(Tensor::Make(DType::kI32, {2, 3}))));
}

TEST(BatchTensors, RowsMustAgree) {
  std::vector<Tensor> inputs = One(Counting({2, 3}, 0));
  EXPECT_EQ(*RowsOf(inputs, {"x"}), 2);
  inputs.push_back(Counting({3}, 0));
  const Status differ = RowsOf(inputs, {"x", "y"}).status();
  EXPECT_EQ(differ.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(differ.message()),
              HasSubstr("input 'y' has 3 rows but input 'x' has 2"));
  inputs[1] = Counting({}, 0);
  EXPECT_THAT(std::string(RowsOf(inputs, {"x", "y"}).status().message()),
              HasSubstr("input 'y' is a scalar"));
}

}  // namespace
}  // namespace millrace::scheduler
