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

}  // namespace
}  // namespace millrace::models
