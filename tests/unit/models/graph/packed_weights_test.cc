#include "models/graph/plan/packed_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace millrace::models::graph {
namespace {

constexpr int64_t kFloats = 100;

std::shared_ptr<const Tensor> Weight() {
  return std::make_shared<const Tensor>(Tensor::Make(DType::kF32, {kFloats}));
}

Status Ones(const Tensor&, float* to) {
  std::fill_n(to, kFloats, 1.0f);
  return OkStatus();
}
Status Fails(const Tensor&, float*) { return Internal("cannot pack"); }

TEST(PackedWeights, AFailureIsToldAndNotKept) {
  PackedWeights packed{WarmBuffer()};
  const auto weight = Weight();
  const PackedForm form{PackedForm::Kind::kOneDnn};
  EXPECT_EQ(packed.FindOrMake(weight, form, kFloats, Fails).status().message(),
            "cannot pack");
  EXPECT_EQ(packed.bytes(), 0);
  const auto again = packed.FindOrMake(weight, form, kFloats, Ones);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)[kFloats - 1], 1.0f);
  // Now it is there, and nothing is asked to make it.
  EXPECT_EQ(*packed.FindOrMake(weight, form, kFloats, Fails), *again);
}

TEST(PackedWeights, AFailureOfBytesIsToldAndNotKept) {
  PackedWeights packed{WarmBuffer()};
  const auto weight = Weight();
  const PackedForm form{PackedForm::Kind::kOneDnn};
  const auto make = [](Status status) {
    return [status] {
      return BytesToPack{{0}, {}, kFloats, [status](int8_t* to) {
                           std::memset(to, 7, kFloats);
                           return status;
                         }};
    };
  };
  EXPECT_FALSE(
      packed.FindOrMakeBytes(weight, form, make(Internal("cannot"))).ok());
  EXPECT_EQ(packed.bytes(), 0);
  const auto again = packed.FindOrMakeBytes(weight, form, make(OkStatus()));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->data[kFloats - 1], 7);
}

TEST(PackedWeights, MemoryOfAFailureIsUsedAgain) {
  PackedWeights packed{WarmBuffer()};
  const PackedForm form{PackedForm::Kind::kRows};
  const auto first = Weight(), second = Weight(), third = Weight();
  const float* before = *packed.FindOrMake(first, form, kFloats, Ones);
  EXPECT_FALSE(packed.FindOrMake(second, form, kFloats, Fails).ok());
  const float* after = *packed.FindOrMake(third, form, kFloats, Ones);
  EXPECT_EQ(after - before, 112) << "100 floats, in whole lines of 16";
}

}  // namespace
}  // namespace millrace::models::graph
