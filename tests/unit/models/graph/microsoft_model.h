// Models of one operator of ONNX Runtime's own domain, for tests with numbers
// small enough to see; tests/bench/graph/ort_ops.py holds them against ONNX
// Runtime.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "models/graph/interpreter.h"
#include "tests/unit/models/graph/onnx_model.h"
#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {

class MicrosoftModel : public testing::Test {
 protected:
  onnx::NodeProto* Node(const std::string& op,
                        const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs = {"y"}) {
    for (const std::string& name : outputs) {
      if (!name.empty()) model_.Output(name);
    }
    onnx::NodeProto* node = model_.Node(op, inputs, outputs);
    node->set_domain("com.microsoft");
    return node;
  }
  static void Int(onnx::NodeProto* node, const char* name, int64_t value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(value);
  }
  static void Float(onnx::NodeProto* node, const char* name, float value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::FLOAT);
    attribute->set_f(value);
  }
  static void Text(onnx::NodeProto* node, const char* name, const char* value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::STRING);
    attribute->set_s(value);
  }

  std::vector<Tensor> Run(std::vector<Tensor> inputs) {
    const auto graph = model_.Import();
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    if (!graph.ok()) return {};
    auto outputs = Interpret(*graph, inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>();
  }
  std::vector<float> One(Tensor x) {
    std::vector<Tensor> inputs;
    inputs.push_back(std::move(x));
    const auto outputs = Run(std::move(inputs));
    return outputs.empty() ? std::vector<float>() : Floats(outputs[0]);
  }

  OnnxModel model_;
};

inline auto Near(const std::vector<float>& values) {
  return testing::Pointwise(testing::FloatNear(1e-5f), values);
}

}  // namespace millrace::models::graph
