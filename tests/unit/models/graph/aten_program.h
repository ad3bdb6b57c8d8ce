// Exported programs of a few ATen nodes, run on numbers small enough to see.
//
//   EXPECT_THAT(One("aten.neg.default", {Self()}, {2}, {1, 2}, {2}),
//               ElementsAre(-1, -2));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "models/graph/interpreter.h"
#include "models/graph/pt2/importer.h"
#include "tests/unit/models/graph/pt2_program.h"

namespace millrace::models::graph {

// What the schema calls arguments.
inline std::string Self(const std::string& tensor = "x") {
  return TensorArg("self", tensor);
}
inline std::string Text(const std::string& name, const std::string& value) {
  return Arg(name, R"({"as_string":")" + value + "\"}");
}
inline std::string Truth(const std::string& name, bool value) {
  return Arg(name, value ? R"({"as_bool":true})" : R"({"as_bool":false})");
}
inline std::string Named(const std::string& tensor) {
  return R"({"as_tensor":{"name":")" + tensor + "\"}}";
}

// The first output of a program of one input, as floats.
inline std::vector<float> FloatsOf(const Pt2Program& program,
                                   const Shape& shape,
                                   const std::vector<float>& values) {
  const auto graph =
      pt2::ImportPt2Bytes(AsBytes(program.Archive()), nullptr, {});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  if (!graph.ok()) return {};
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::From<float>(DType::kF32, shape, values));
  const auto outputs = Interpret(*graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (!outputs.ok()) return {};
  const Tensor& y = (*outputs)[0];
  std::vector<float> floats;
  for (int64_t i = 0; i < y.num_elements(); ++i) {
    floats.push_back(
        y.dtype() == DType::kI64    ? static_cast<float>(y.data<int64_t>()[i])
        : y.dtype() == DType::kBool ? static_cast<float>(y.data<uint8_t>()[i])
                                    : y.data<float>()[i]);
  }
  return floats;
}

// A program of one input x, whose sizes are those of the tensor given to Run.
class Program : public Pt2Program {
 public:
  explicit Program(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
    Input("x", Sizes(sizes_));
  }
  static std::vector<std::string> Sizes(const std::vector<int64_t>& sizes) {
    std::vector<std::string> texts;
    for (const int64_t size : sizes) texts.push_back(std::to_string(size));
    return texts;
  }
  // The output `name` as floats.
  std::vector<float> Run(const std::string& name,
                         const std::vector<float>& values) {
    Output(name);
    return FloatsOf(*this, Shape(sizes_), values);
  }

 private:
  std::vector<int64_t> sizes_;
};

// One node from x to y.
inline std::vector<float> One(const std::string& target,
                              const std::vector<std::string>& arguments,
                              const std::vector<int64_t>& sizes,
                              const std::vector<float>& values,
                              const std::vector<int64_t>& out, int dtype = 7) {
  Program program(sizes);
  program.Node(target, arguments, "y", Program::Sizes(out), dtype);
  return program.Run("y", values);
}

// One node from x to several; the result of that place.
inline std::vector<float> OneOf(const std::string& target,
                                const std::vector<std::string>& arguments,
                                const std::vector<int64_t>& sizes,
                                const std::vector<float>& values,
                                const std::vector<int>& dtypes, size_t place) {
  Program program(sizes);
  std::string outputs;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const std::string name = "y" + std::to_string(i);
    program.Meta(name, Program::Sizes(sizes), dtypes[i]);
    outputs += (i > 0 ? "," : "") + Named(name);
  }
  program.RawNode(target, arguments, outputs);
  return program.Run("y" + std::to_string(place), values);
}

inline auto Near(const std::vector<float>& values) {
  return testing::Pointwise(testing::FloatNear(1e-5f), values);
}

}  // namespace millrace::models::graph
