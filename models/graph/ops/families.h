// The table of all operators, one family a file.
#pragma once

#include <span>

#include "models/graph/op.h"

namespace millrace::models::graph {

std::span<const OpDef> BinaryOps();      // binary.cc: Add, Mul, …
std::span<const OpDef> ActivationOps();  // activation.cc: Relu, Sigmoid, …
std::span<const OpDef> MatMulOps();      // matmul.cc: MatMul, Linear, Gemm
std::span<const OpDef> SoftmaxOps();     // softmax.cc: Softmax, Hardmax, …

inline constexpr std::span<const OpDef> (*kOpFamilies[])() = {
    BinaryOps,
    ActivationOps,
    MatMulOps,
    SoftmaxOps,
};

}  // namespace millrace::models::graph
