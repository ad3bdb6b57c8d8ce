// Runs one operator on a few numbers, for the tests of families.
//
//   const auto y = RunOp("Gemm", {F({2, 2}, {1, 2, 3, 4}), …},
//   {{"alpha", 2.0}}); ASSERT_TRUE(y.ok()) << y.status().message();
//   EXPECT_THAT(Floats((*y)[0]), ElementsAre(…));
//
// The operator runs once alone and once by a team of three, whose results must
// be the same bits.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/graph/interpreter.h"
#include "models/graph/op.h"

namespace millrace::models::graph {

// An operand that may be left out.
using Operand = std::optional<Tensor>;

template <typename T>
Tensor Of(DType dtype, const Shape& shape, std::vector<T> values) {
  CHECK(shape.num_elements() == static_cast<int64_t>(values.size()),
        "as many values as the shape says");
  return Tensor::From<T>(dtype, shape, values);
}
inline Tensor F(const Shape& shape, std::vector<float> values) {
  return Of<float>(DType::kF32, shape, std::move(values));
}
inline Tensor D(const Shape& shape, std::vector<double> values) {
  return Of<double>(DType::kF64, shape, std::move(values));
}
inline Tensor I64(const Shape& shape, std::vector<int64_t> values) {
  return Of<int64_t>(DType::kI64, shape, std::move(values));
}
inline Tensor I32(const Shape& shape, std::vector<int32_t> values) {
  return Of<int32_t>(DType::kI32, shape, std::move(values));
}
inline Tensor I8(const Shape& shape, std::vector<int8_t> values) {
  return Of<int8_t>(DType::kI8, shape, std::move(values));
}
inline Tensor U8(const Shape& shape, std::vector<uint8_t> values) {
  return Of<uint8_t>(DType::kU8, shape, std::move(values));
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return std::vector<T>(tensor.data<T>(),
                        tensor.data<T>() + tensor.num_elements());
}
inline std::vector<float> Floats(const Tensor& tensor) {
  return Values<float>(tensor);
}

namespace internal {

template <typename T>
Operand AsOperand(T&& value) {
  return Operand(std::forward<T>(value));
}

}  // namespace internal

// A list of operands: tensors, or std::nullopt for what is left out.
template <typename... T>
std::vector<Operand> Operands(T&&... tensors) {
  std::vector<Operand> list;
  (list.push_back(internal::AsOperand(std::forward<T>(tensors))), ...);
  return list;
}

inline StatusOr<std::vector<Tensor>> RunOp(std::string_view name,
                                           const std::vector<Operand>& operands,
                                           Attrs attrs = {},
                                           int num_outputs = 1) {
  Node node{.op = FindOp(name),
            .name = "n",
            .inputs = {},
            .outputs = {},
            .attrs = std::move(attrs),
            .bodies = {}};
  CHECK(node.op != nullptr, "the operator exists");
  for (int i = 0; i < num_outputs; ++i) node.outputs.push_back(i);
  std::vector<const Tensor*> pointers;
  std::vector<Arg> args;
  for (const Operand& operand : operands) {
    pointers.push_back(operand ? &*operand : nullptr);
    args.emplace_back();
    if (operand) {
      args.back() = {true, operand->dtype(), operand->shape(),
                     operand->bytes()};
    }
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> alone, RunNode(node, pointers));
  if (node.op->work == Work::kSplits && node.op->pure) {
    std::vector<Tensor> shared;
    std::vector<Result> results;
    for (const Tensor& tensor : alone) {
      shared.push_back(Tensor::Make(tensor.dtype(), tensor.shape()));
      results.push_back(
          {tensor.dtype(), tensor.shape(), shared.back().bytes()});
    }
    for (int i = 0; i < 3; ++i) {
      RETURN_IF_ERROR(node.op->run(Call{node, args}, results, Team{i, 3}));
    }
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(std::memcmp(alone[i].bytes(), shared[i].bytes(),
                            static_cast<size_t>(alone[i].num_bytes())),
                0)
          << name << ": a team of three makes another output " << i;
    }
  }
  return alone;
}

}  // namespace millrace::models::graph
