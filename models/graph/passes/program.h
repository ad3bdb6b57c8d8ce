// What a fused elementwise node computes: a list of instructions over
// registers. The first registers are the operands, each instruction writes the
// next one, and the last is the result.
//
//   x * sigmoid(x):   operands x;  r1 = sigmoid(r0);  r2 = mul(r0, r1)
//
// It travels in the attributes `program` (four numbers an instruction) and
// `params` (two), so that a graph stays plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cpu/graph_kernels.h"
#include "models/graph/attrs.h"

namespace millrace::models::graph {

enum class Pointwise : int32_t { kUnary, kAdd, kSub, kMul, kDiv, kMin, kMax };

struct Instruction {
  Pointwise kind = Pointwise::kUnary;
  Unary f = Unary::kNone;  // of kUnary, with its parameters
  int32_t x = 0;           // registers
  int32_t y = 0;
  float a = 0;
  float b = 0;
};

using Program = std::vector<Instruction>;

Attrs ProgramAttrs(const Program& program);
Program ProgramFrom(const Attrs& attrs);

}  // namespace millrace::models::graph
