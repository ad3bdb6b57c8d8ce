#include "models/tensor/tensor.h"

#include <gtest/gtest.h>

#include <memory>

namespace millrace::models {
namespace {

TEST(Tensor, DropsPagesOfItsSourceAndOfNothingElse) {
  struct Source : ByteSource {
    mutable std::span<const std::byte> dropped;
    void DropPages(std::span<const std::byte> bytes) const override {
      dropped = bytes;
    }
  };
  const auto source = std::make_shared<const Source>();
  const float values[] = {1, 2, 3, 4, 5, 6};
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  const Tensor borrowed =
      Tensor::Borrow(DType::kF32, {2, 3}, bytes, source, source.get());
  borrowed.Share().Reshaped({6}).DropPages();
  EXPECT_EQ(source->dropped.data(), bytes);
  EXPECT_EQ(source->dropped.size(), sizeof(values));
  source->dropped = {};
  borrowed.Copy().DropPages();  // memory of its own: nothing happens
  Tensor::Make(DType::kF32, {2}).DropPages();
  EXPECT_EQ(source->dropped.data(), nullptr);
}

TEST(Tensor, LateBytesAreCopiedOnceAndOnlyWhenTheyAreAskedFor) {
  alignas(8) std::byte raw[9];
  const float one = 1;
  const float two = 2;
  std::memcpy(raw + 1, &one, 4);
  std::memcpy(raw + 5, &two, 4);
  const Tensor late = Tensor::Late(DType::kF32, {2}, raw + 1, nullptr);
  const Tensor shared = late.Share().Reshaped({2, 1});
  EXPECT_EQ(late.Aligned().data<float>()[1], 2);
  EXPECT_EQ(late.Copy().data<float>()[0], 1);
  EXPECT_TRUE(late.is_late());
  const float* asked = shared.data<float>();
  EXPECT_EQ(asked[1], 2);
  EXPECT_FALSE(late.is_late());
  EXPECT_EQ(late.data<float>(), asked);
  EXPECT_EQ(late.Aligned().data<float>(), asked);
}

TEST(Tensor, DerivedBytesAreMadeAnewForEachCopyAndLeaveTheOthersAlone) {
  const float values[] = {1, 2};
  const Tensor of = Tensor::From<float>(DType::kF32, {2}, values);
  const auto add = [](float by) {
    return [by](std::byte* copy) { reinterpret_cast<float*>(copy)[1] += by; };
  };
  const Tensor once = Tensor::Derived(of, add(10));
  const Tensor twice = Tensor::Derived(once.Share(), add(100));
  EXPECT_EQ(once.Aligned().data<float>()[1], 12);
  EXPECT_TRUE(once.is_late());
  EXPECT_EQ(twice.Reshaped({2, 1}).Copy().data<float>()[1], 112);
  EXPECT_EQ(once.data<float>()[1], 12);  // stays
  EXPECT_EQ(once.Copy().data<float>()[1], 12);
  EXPECT_EQ(of.data<float>()[1], 2);
}

}  // namespace
}  // namespace millrace::models
