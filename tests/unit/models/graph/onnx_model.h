// ONNX models for tests, written line by line.
#pragma once

#ifndef ONNX_ML
#define ONNX_ML 1  // as the package's target does
#endif
#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "models/graph/onnx/importer.h"

namespace millrace::models::graph {

class OnnxModel {
 public:
  explicit OnnxModel(int64_t opset = 20) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
  }

  onnx::GraphProto* graph() { return model_.mutable_graph(); }
  onnx::ModelProto& proto() { return model_; }

  void Input(const std::string& name, std::vector<int64_t> dims,
             int type = onnx::TensorProto::FLOAT) {
    Port(graph()->add_input(), name, dims, type);
  }
  void Output(const std::string& name) {
    Port(graph()->add_output(), name, {}, onnx::TensorProto::FLOAT);
  }
  onnx::NodeProto* Node(const std::string& op, std::vector<std::string> inputs,
                        std::vector<std::string> outputs) {
    return NodeIn(graph(), op, inputs, outputs);
  }
  static onnx::NodeProto* NodeIn(onnx::GraphProto* graph, const std::string& op,
                                 const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs) {
    onnx::NodeProto* node = graph->add_node();
    node->set_op_type(op);
    node->set_name(op + "_" + std::to_string(graph->node_size()));
    for (const auto& name : inputs) node->add_input(name);
    for (const auto& name : outputs) node->add_output(name);
    return node;
  }
  onnx::TensorProto* Floats(const std::string& name, std::vector<int64_t> dims,
                            const std::vector<float>& values) {
    onnx::TensorProto* tensor = graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    for (const int64_t dim : dims) tensor->add_dims(dim);
    for (const float value : values) tensor->add_float_data(value);
    return tensor;
  }
  static void Ints(onnx::NodeProto* node, const std::string& name,
                   std::vector<int64_t> values) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INTS);
    for (const int64_t value : values) attribute->add_ints(value);
  }

  StatusOr<Graph> Import(ImportReport* report = nullptr,
                         const std::string& folder = "",
                         const ImportLimits& limits = {}) const {
    const std::string bytes = model_.SerializeAsString();
    return ImportOnnxBytes(std::as_bytes(std::span(bytes)), folder, report,
                           limits);
  }

 private:
  static void Port(onnx::ValueInfoProto* info, const std::string& name,
                   const std::vector<int64_t>& dims, int type) {
    info->set_name(name);
    auto* tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    for (const int64_t dim : dims) {
      tensor->mutable_shape()->add_dim()->set_dim_value(dim);
    }
  }

  onnx::ModelProto model_;
};

}  // namespace millrace::models::graph
