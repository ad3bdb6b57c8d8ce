#include "models/graph/passes/program.h"

namespace millrace::models::graph {

Attrs ProgramAttrs(const Program& program) {
  std::vector<int64_t> code;
  std::vector<double> params;
  for (const Instruction& i : program) {
    code.insert(code.end(),
                {static_cast<int>(i.kind), static_cast<int>(i.f), i.x, i.y});
    params.insert(params.end(), {i.a, i.b});
  }
  return {{"program", std::move(code)}, {"params", std::move(params)}};
}

Program ProgramFrom(const Attrs& attrs) {
  const std::vector<int64_t>& code = attrs.Ints("program");
  const std::vector<double>& params = attrs.Floats("params");
  Program program;
  for (size_t i = 0; 4 * i < code.size(); ++i) {
    program.push_back({.kind = static_cast<Pointwise>(code[4 * i]),
                       .f = static_cast<Unary>(code[4 * i + 1]),
                       .x = static_cast<int32_t>(code[4 * i + 2]),
                       .y = static_cast<int32_t>(code[4 * i + 3]),
                       .a = static_cast<float>(params[2 * i]),
                       .b = static_cast<float>(params[2 * i + 1])});
  }
  return program;
}

}  // namespace millrace::models::graph
