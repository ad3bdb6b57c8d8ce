#include "models/graph/onnx/graph_reader.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "models/graph/onnx/order.h"
#include "models/graph/onnx/ports.h"
#include "models/graph/onnx/tensor.h"
#include "models/graph/onnx/text.h"
#include "models/graph/op.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

Status AtNode(const onnx::NodeProto& node, const Status& status) {
  return status.Prefixed("node " + Quoted(node.name()) + " (" +
                         Cleaned(node.op_type()) + ")");
}

bool IsOwnDomain(const onnx::NodeProto& node) {
  return node.domain().empty() || node.domain() == "ai.onnx";
}

std::string OtherDomain(const onnx::NodeProto& node) {
  if (node.domain() == "com.microsoft.nchwc") {
    return "ONNX Runtime has laid its weights out for the machine that saved "
           "the file; save it with ORT_ENABLE_EXTENDED at most";
  }
  return "its domain is neither ONNX's own nor ai.onnx.ml nor "
         "com.microsoft";
}

}  // namespace

StatusOr<Graph> GraphReader::Read(onnx::ModelProto* model) {
  Graph graph;
  graph.name = Cleaned(model->graph().name());
  Scope scope(&graph, nullptr);
  Ranks ranks;
  const Opsets opsets = OpsetsOf(model->opset_import());
  const AttributeScope none;
  const Place place{scope, opsets, none, ranks};
  RETURN_IF_ERROR(ReadPorts(model->mutable_graph(), place));
  RETURN_IF_ERROR(ReadNodes(model->mutable_graph(), place));
  RETURN_IF_ERROR(ReadOutputs(model->graph(), place));
  return graph;
}

// Initializers that are named among the inputs, as old files do, are constants.
Status GraphReader::ReadPorts(onnx::GraphProto* proto, const Place& place) {
  std::unordered_set<std::string_view> constants;
  for (const auto& tensor : proto->initializer()) {
    constants.insert(tensor.name());
  }
  if (proto->sparse_initializer_size() > 0) {
    return Unimplemented("the graph has sparse initializers");
  }
  Graph& graph = *place.scope.graph();
  for (const auto& info : proto->input()) {
    if (constants.contains(info.name())) continue;
    ASSIGN_OR_RETURN(Port port, PortOf(info, &graph, false));
    port.value = graph.AddValue(port.name);
    RETURN_IF_ERROR(place.scope.Define(info.name(), port.value));
    graph.inputs.push_back(std::move(port));
  }
  const auto declare = [&](const auto& infos) {
    for (const auto& info : infos) {
      if (const int rank = DeclaredRank(info); rank >= 0) {
        place.ranks.emplace(info.name(), rank);
      }
    }
  };
  declare(proto->input());
  declare(proto->value_info());
  declare(proto->output());
  return OkStatus();
}

Status GraphReader::Charge(int64_t bytes) {
  const int64_t in_files =
      files_.num_bytes() +
      (file_ == nullptr ? 0 : static_cast<int64_t>(file_->bytes().size()));
  const int64_t most = limits_->max_weight_bytes + in_files;
  if (bytes > most - weight_bytes_) {
    return ResourceExhausted("the weights exceed the limit of " +
                             std::to_string(most) + " bytes");
  }
  weight_bytes_ += bytes;
  return OkStatus();
}

Status GraphReader::ReadInitializer(onnx::TensorProto* tensor, LateBytes late,
                                    const Place& place) {
  onnx::TensorProto copy;
  if (place.in_function) {
    copy = *tensor;
    tensor = &copy;
  }
  const std::string name = tensor->name();
  ASSIGN_OR_RETURN(Tensor constant, TakeTensor(tensor, &files_, late));
  RETURN_IF_ERROR(Charge(constant.num_bytes() + NumCharacters(constant)));
  place.ranks.emplace(tensor->name(), constant.shape().rank());
  return place.scope.Define(name, place.scope.graph()->AddConstant(
                                      Cleaned(name), std::move(constant)));
}

Status GraphReader::ReadNodes(onnx::GraphProto* proto, const Place& place) {
  const bool is_main = place.depth == 0 && !place.in_function;
  for (int i = 0; i < proto->initializer_size(); ++i) {
    LateBytes late;
    if (is_main) late = {lifted_->RawOf(i), file_};
    RETURN_IF_ERROR(
        ReadInitializer(proto->mutable_initializer(i), late, place));
  }
  ASSIGN_OR_RETURN(const std::vector<int> order, RunningOrder(*proto));
  for (const int i : order) {
    RETURN_IF_ERROR(ReadNode(proto->node(i), place));
  }
  return OkStatus();
}

Status GraphReader::ReadOutputs(const onnx::GraphProto& proto,
                                const Place& place) {
  Graph& graph = *place.scope.graph();
  for (const auto& info : proto.output()) {
    ASSIGN_OR_RETURN(Port port, PortOf(info, &graph, true));
    const auto value = place.scope.Find(info.name());
    if (!value.has_value()) {
      return InvalidArgument("nothing makes the output " + Quoted(info.name()));
    }
    port.value = *value;
    graph.outputs.push_back(std::move(port));
  }
  return OkStatus();
}

Status GraphReader::ReadNode(const onnx::NodeProto& node, const Place& place) {
  if (++num_nodes_ > limits_->max_nodes) {
    return ResourceExhausted("the graph has more than " +
                             std::to_string(limits_->max_nodes) + " nodes");
  }
  Values inputs;
  for (const std::string& name : node.input()) {
    if (name.empty()) {
      inputs.push_back(kNoValue);
      continue;
    }
    const auto value = place.scope.Find(name);
    if (!value.has_value()) {
      return AtNode(
          node, InvalidArgument("nothing makes its operand " + Quoted(name)));
    }
    inputs.push_back(*value);
  }
  StatusOr<Values> made = Convert(node, inputs, place);
  if (!made.ok()) {
    if (made.status().code() != StatusCode::kUnimplemented) {
      return AtNode(node, made.status());
    }
    Report(node, *place.scope.graph(), inputs, made.status().message());
    made = Values();
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const auto at = static_cast<size_t>(i);
    ValueId value = at < made->size() ? (*made)[at] : kNoValue;
    if (value == kNoValue) {
      // Only a node that was reported, or one with more outputs than it may
      // have: whoever reads this then is told so.
      if (report_->unsupported.empty()) {
        return AtNode(node,
                      InvalidArgument("it has no output " + std::to_string(i)));
      }
      value = place.scope.graph()->AddValue(Cleaned(node.output(i)));
    }
    RETURN_IF_ERROR(place.scope.Define(node.output(i), value));
  }
  return OkStatus();
}

StatusOr<GraphReader::Values> GraphReader::Convert(const onnx::NodeProto& node,
                                                   const Values& inputs,
                                                   const Place& place) {
  if (const Function* function = functions_.Find(node)) {
    return Call(node, *function, inputs, place);
  }
  const bool microsoft = node.domain() == "com.microsoft";
  const bool tabular = node.domain() == "ai.onnx.ml";
  if (!IsOwnDomain(node) && !microsoft && !tabular) {
    return Unimplemented(OtherDomain(node));
  }
  if (IsOwnDomain(node) && HasBodies(node.op_type())) {
    return ControlFlow(node, inputs, place);
  }
  // Those of importers: models/graph/ml/op_data.h.
  if (node.op_type().starts_with("ml.")) {
    return Unimplemented("no file may name it");
  }
  NodeWriter writer(place.scope.graph());
  writer.op = node.op_type();
  writer.name =
      Cleaned(node.name().empty() && node.output_size() > 0 ? node.output(0)
                                                            : node.name());
  const auto opset = place.opsets.find(IsOwnDomain(node) ? "" : node.domain());
  writer.opset = opset != place.opsets.end() ? opset->second : 1;
  writer.inputs = inputs;
  while (!writer.inputs.empty() && writer.inputs.back() == kNoValue) {
    writer.inputs.pop_back();
  }
  for (const std::string& name : node.output()) {
    writer.wanted.push_back(!name.empty());
  }
  ASSIGN_OR_RETURN(writer.attrs, AttrsOf(node, place.attributes));
  writer.tensor_attr = [&](std::string_view attr) -> StatusOr<Tensor> {
    const auto* found = FindAttribute(node, attr, place.attributes);
    if (found == nullptr || !found->has_t()) {
      return NotFound("there is no tensor " + Quoted(attr));
    }
    onnx::TensorProto copy = found->t();
    return TakeTensor(&copy, &files_);
  };
  writer.rank_of = [&](ValueId value) {
    for (int i = 0; i < node.input_size(); ++i) {
      if (value != inputs[static_cast<size_t>(i)]) continue;
      const auto rank = place.ranks.find(node.input(i));
      return rank != place.ranks.end() ? rank->second : -1;
    }
    return -1;
  };
  writer.tell_rank = [&](size_t output, int rank) {
    const auto i = static_cast<int>(output);
    if (rank >= 0 && i < node.output_size()) {
      place.ranks.emplace(node.output(i), rank);
    }
  };
  writer.charge = [this](int64_t bytes) { return Charge(bytes); };
  Rewrite rewrite = microsoft ? FindMicrosoft(writer.op)
                    : tabular ? FindTabular(writer.op)
                              : FindExpansion(writer.op);
  if (rewrite == nullptr && (microsoft || tabular)) {
    return Unimplemented("no such operator of its domain");
  }
  if (rewrite == nullptr) rewrite = FindUpgrade(writer.op);
  if (IsOwnDomain(node) && (writer.op == "Cast" || writer.op == "Identity")) {
    writer.tell_rank(0, writer.rank_of(writer.in(0)));
  }
  if (rewrite == nullptr) {
    Values made = writer.EmitSelf();
    RETURN_IF_ERROR(writer.status());
    return made;
  }
  ASSIGN_OR_RETURN(Values made, rewrite(writer));
  RETURN_IF_ERROR(writer.status());
  return made;
}

StatusOr<GraphReader::Values> GraphReader::Call(const onnx::NodeProto& node,
                                                const Function& function,
                                                const Values& inputs,
                                                const Place& place) {
  if (place.depth >= limits_->max_depth) {
    return ResourceExhausted("functions call each other more than " +
                             std::to_string(limits_->max_depth) +
                             " levels deep");
  }
  AttributeScope attributes = function.defaults;
  for (const auto& given : node.attribute()) {
    if (const auto* attribute = Resolve(given, place.attributes)) {
      attributes[given.name()] = attribute;
    }
  }
  Scope scope(place.scope.graph(), nullptr);
  Ranks ranks;
  const onnx::FunctionProto& proto = *function.proto;
  for (int i = 0; i < proto.input_size(); ++i) {
    const auto at = static_cast<size_t>(i);
    RETURN_IF_ERROR(scope.Define(proto.input(i),
                                 at < inputs.size() ? inputs[at] : kNoValue));
  }
  const Place inside{scope, function.opsets, attributes,
                     ranks, place.depth + 1, true};
  onnx::GraphProto body;  // to be put in order
  *body.mutable_node() = proto.node();
  ASSIGN_OR_RETURN(const std::vector<int> order, RunningOrder(body));
  for (const int i : order) {
    RETURN_IF_ERROR(ReadNode(proto.node(i), inside));
  }
  Values outputs;
  for (const std::string& name : proto.output()) {
    const auto value = scope.Find(name);
    if (!value.has_value()) {
      return InvalidArgument("nothing in the function makes " + Quoted(name));
    }
    outputs.push_back(*value);
  }
  return outputs;
}

void GraphReader::Report(const onnx::NodeProto& node, const Graph& graph,
                         const Values& inputs, std::string_view why) {
  std::string text;
  for (int i = 0; i < node.input_size(); ++i) {
    if (i > 0) text += ", ";
    text += Cleaned(node.input(i));
    const ValueId id = inputs[static_cast<size_t>(i)];
    if (id == kNoValue) continue;
    if (const auto& type = graph.value(id).type) {
      text += " " + TypeText(type->dtype, type->shape);
    }
  }
  const std::string domain = IsOwnDomain(node) ? "" : node.domain() + "::";
  report_->unsupported.push_back({Cleaned(domain + node.op_type()),
                                  Cleaned(node.name()), text,
                                  std::string(why)});
}

}  // namespace millrace::models::graph
