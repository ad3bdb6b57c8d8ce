#include "server/classification.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace millrace::server {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using Texts = std::vector<std::string>;

template <typename T>
Tensor Make(DType dtype, const Shape& shape, const std::vector<T>& values) {
  return Tensor::From<T>(dtype, shape, values);
}

TEST(Classification, TheBestOfEachRowComeFirst) {
  const Tensor x = Make<float>(DType::kF32, {2, 3}, {1.5f, -2, 0.25f, 1, 4, 3});
  const Classes best = Classify(x, 2);
  EXPECT_EQ(best.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(best.texts,
            (Texts{"1.500000:0", "0.250000:2", "4.000000:1", "3.000000:2"}));
}

TEST(Classification, NoMoreThanThereAre) {
  const Tensor x = Make<int32_t>(DType::kI32, {3}, {7, 9, 8});
  const Classes all = Classify(x, 100);
  EXPECT_EQ(all.shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(all.texts, (Texts{"9:1", "8:2", "7:0"}));
}

TEST(Classification, EqualValuesGoByIndexAndNaNIsLast) {
  const float nan = std::nanf("");
  const Tensor x = Make<float>(DType::kF32, {1, 4}, {nan, 1, nan, 1});
  EXPECT_EQ(Classify(x, 4).texts,
            (Texts{"1.000000:1", "1.000000:3", "nan:0", "nan:2"}));
}

TEST(Classification, EmptyTensorsHaveNoClasses) {
  const Classes none = Classify(Tensor::Make(DType::kF32, {0, 5}), 1);
  EXPECT_EQ(none.shape, (std::vector<int64_t>{0, 0}));
  EXPECT_TRUE(none.texts.empty());
}

TEST(Classification, TextsTravelBehindTheirLengths) {
  EXPECT_EQ(PackTexts({"ab", ""}), std::string("\x02\0\0\0ab\0\0\0\0", 10));
}

}  // namespace
}  // namespace millrace::server
