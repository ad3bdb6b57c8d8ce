// If, Loop and Scan: their graphs become bodies that see nothing but their
// inputs.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <utility>

#include "models/graph/onnx/graph_reader.h"
#include "models/graph/onnx/text.h"
#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

// Operands after those of the file: what any of the bodies captures, each once.
// Every body gets an input for each of them.
template <typename Bodies>
void HandIn(Bodies& bodies, std::vector<ValueId>* operands) {
  std::vector<Scope::Capture> all;
  for (const auto& body : bodies) {
    for (const Scope::Capture& capture : body.captures) {
      if (std::none_of(all.begin(), all.end(), [&](const auto& one) {
            return one.outside == capture.outside;
          })) {
        all.push_back(capture);
      }
    }
  }
  for (const Scope::Capture& capture : all) {
    operands->push_back(capture.outside);
    for (auto& body : bodies) {
      const auto own = std::find_if(
          body.captures.begin(), body.captures.end(),
          [&](const auto& one) { return one.outside == capture.outside; });
      Graph& graph = *body.graph;
      const ValueId value = own != body.captures.end()
                                ? own->inside
                                : graph.AddValue(capture.name);
      Port port;
      port.name = capture.name;
      port.value = value;
      port.rank_known = false;
      graph.inputs.push_back(std::move(port));
    }
  }
}

// What the node gives and wants is what its bodies take and make; whoever runs
// or unrolls them counts on it.
Status CheckFit(std::string_view op, const std::vector<ValueId>& operands,
                size_t num_results, const Graph& body, int64_t num_carried) {
  const auto carried = static_cast<size_t>(num_carried);
  const size_t formal = operands.size() - (op == "If" ? 1 : 0);
  // A body of a loop says first whether it goes on.
  const size_t spare = op == "Loop" ? 1 : 0;
  if (body.inputs.size() != formal || body.outputs.size() < carried + spare ||
      body.outputs.size() - spare < num_results) {
    return InvalidArgument(
        "a body has " + std::to_string(body.inputs.size()) + " inputs and " +
        std::to_string(body.outputs.size()) +
        " outputs, which do not fit the " + std::to_string(operands.size()) +
        " operands and " + std::to_string(num_results) +
        " results of the node");
  }
  const size_t optional = op == "Loop" ? 2 : 0;  // number of trips, condition
  if (std::count(operands.begin() +
                     static_cast<int64_t>(std::min(optional, operands.size())),
                 operands.end(), kNoValue) > 0) {
    return InvalidArgument("an operand that its body takes is left out");
  }
  return OkStatus();
}

}  // namespace

bool HasBodies(std::string_view op) {
  return op == "If" || op == "Loop" || op == "Scan" || op == "SequenceMap";
}

StatusOr<GraphReader::Body> GraphReader::ReadBody(const onnx::NodeProto& node,
                                                  std::string_view attr,
                                                  const Place& place) {
  if (place.depth >= limits_->max_depth) {
    return ResourceExhausted("graphs stand in each other more than " +
                             std::to_string(limits_->max_depth) +
                             " levels deep");
  }
  const auto* attribute = FindAttribute(node, attr, place.attributes);
  if (attribute == nullptr || !attribute->has_g()) {
    return InvalidArgument("the graph " + Quoted(attr) + " is missing");
  }
  // Its initializers are taken: it is not read again, but for functions.
  auto* proto = const_cast<onnx::GraphProto*>(&attribute->g());
  Body body{std::make_shared<Graph>(), {}};
  Scope scope(body.graph.get(), &place.scope);
  Ranks ranks;
  const Place inside{scope, place.opsets,    place.attributes,
                     ranks, place.depth + 1, place.in_function};
  RETURN_IF_ERROR(ReadPorts(proto, inside));
  RETURN_IF_ERROR(ReadNodes(proto, inside));
  RETURN_IF_ERROR(ReadOutputs(*proto, inside));
  body.captures = scope.captures();
  return body;
}

StatusOr<GraphReader::Values> GraphReader::ControlFlow(
    const onnx::NodeProto& node, Values inputs, const Place& place) {
  const OpDef* op = FindOp(node.op_type());
  if (op == nullptr) return Unimplemented("no such operator");
  const bool is_if = node.op_type() == "If";
  std::vector<Body> bodies;
  for (const std::string_view attr :
       is_if ? std::vector<std::string_view>{"then_branch", "else_branch"}
             : std::vector<std::string_view>{"body"}) {
    ASSIGN_OR_RETURN(Body body, ReadBody(node, attr, place));
    bodies.push_back(std::move(body));
  }
  ASSIGN_OR_RETURN(Attrs attrs, AttrsOf(node, place.attributes));
  const auto opset = place.opsets.find("");
  if (node.op_type() == "Scan" && opset != place.opsets.end() &&
      opset->second < 9) {
    return Unimplemented("Scan of opset 8, over batches");
  }
  if (node.op_type() == "Loop") {
    inputs.resize(std::max(inputs.size(), size_t{2}), kNoValue);
    attrs.Set("num_carried", static_cast<int64_t>(inputs.size()) - 2);
  }
  if (node.op_type() == "Scan") {
    const auto num_operands = static_cast<int64_t>(inputs.size());
    const int64_t num_scanned = attrs.Int("num_scan_inputs", 0);
    if (num_scanned < 1 || num_scanned > num_operands) {
      return InvalidArgument("num_scan_inputs is " +
                             std::to_string(num_scanned) + " of " +
                             std::to_string(num_operands) + " operands");
    }
    attrs.Set("num_carried", num_operands - num_scanned);
  }
  for (const Body& body : bodies) {
    RETURN_IF_ERROR(CheckFit(node.op_type(), inputs,
                             static_cast<size_t>(node.output_size()),
                             *body.graph, attrs.Int("num_carried", 0)));
  }
  HandIn(bodies, &inputs);
  Node made;
  made.op = op;
  made.name = Cleaned(node.name());
  made.inputs = std::move(inputs);
  made.attrs = std::move(attrs);
  for (Body& body : bodies) {
    made.bodies.push_back(std::shared_ptr<const Graph>(std::move(body.graph)));
  }
  for (const std::string& name : node.output()) {
    made.outputs.push_back(
        name.empty() ? kNoValue : place.scope.graph()->AddValue(Cleaned(name)));
  }
  Values outputs = made.outputs;
  place.scope.graph()->nodes.push_back(std::move(made));
  return outputs;
}

}  // namespace millrace::models::graph
