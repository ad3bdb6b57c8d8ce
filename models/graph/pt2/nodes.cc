#include "models/graph/pt2/nodes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/graph/pt2/arguments.h"

namespace millrace::models::graph::pt2 {
namespace {

// What computes nothing but what its body says. Operands follow the body.
constexpr std::string_view kWrappers[] = {
    "higher_order.wrap_with_set_grad_enabled",
    "higher_order.wrap_with_autocast",
    "higher_order.invoke_subgraph",
    "higher_order.wrap",
    "higher_order.tag_activation_checkpoint",
};

// What decides by its operands which of its bodies run, and how often.
constexpr std::string_view kBranches = "higher_order.cond";
constexpr std::string_view kLoop = "higher_order.while_loop";
constexpr std::string_view kScan = "higher_order.scan";
constexpr std::string_view kMap = "higher_order.map_impl";

StatusOr<NodeSpec> ParseNode(const Json& json) {
  NodeSpec node;
  ASSIGN_OR_RETURN(node.target, TextMember(json, "target"));
  constexpr std::string_view kOps = "torch.ops.";
  if (node.target.starts_with(kOps)) node.target.erase(0, kOps.size());
  if (const Json* name = FindMember(json, "name");
      name != nullptr && name->is_string()) {
    node.name = name->get<std::string>();
  }
  const auto in_node = [&](const Status& status) {
    return status.Prefixed("node '" + Shown(node.name) + "' (" +
                           Shown(node.target) + ")");
  };
  ASSIGN_OR_RETURN(const Json* inputs, ArrayMember(json, "inputs"));
  for (const Json& input : *inputs) {
    // Operands of higher-order operators have no names.
    const Json* name = FindMember(input, "name");
    ASSIGN_OR_RETURN(const Json* arg, Member(input, "arg"));
    auto argument = ParseArgument(*arg);
    if (!argument.ok()) return in_node(argument.status());
    node.inputs.emplace_back(
        name != nullptr && name->is_string() ? name->get<std::string>() : "",
        std::move(*argument));
  }
  ASSIGN_OR_RETURN(const Json* outputs, ArrayMember(json, "outputs"));
  for (const Json& output : *outputs) {
    auto argument = ParseArgument(output);
    if (!argument.ok()) return in_node(argument.status());
    node.outputs.push_back(std::move(*argument));
  }
  if (node.name.empty() && !node.outputs.empty() &&
      !node.outputs[0].tensors.empty()) {
    node.name = node.outputs[0].tensors[0];
  }
  return node;
}

// A list of arguments, one for each tensor or number in it.
std::vector<Argument> Singles(const std::vector<Argument>& arguments) {
  std::vector<Argument> singles;
  for (const Argument& argument : arguments) {
    for (const std::string& tensor : argument.tensors) {
      Argument& single = singles.emplace_back();
      single.kind = Argument::Kind::kTensor;
      single.tensors = {tensor};
    }
    for (const Scalar& scalar : argument.scalars) {
      Argument& single = singles.emplace_back();
      single.kind = Argument::Kind::kScalar;
      single.scalars = {scalar};
    }
    if (argument.tensors.empty() && argument.scalars.empty()) {
      singles.push_back(argument);
    }
  }
  return singles;
}

class NodeReader {
 public:
  // `num_nodes` counts those of all programs inside each other.
  NodeReader(const ImportLimits& limits, Program& program, int64_t& num_nodes)
      : limits_(limits), program_(program), num_nodes_(num_nodes) {}

  // Names of the graph get the prefix in the program, but for those that stand
  // for an argument.
  using Names = std::unordered_map<std::string, Argument>;

  Status Graph(const Json& graph, const Names& names, const std::string& prefix,
               int depth) {
    if (depth > limits_.max_depth) {
      return InvalidArgument("the program has more than " +
                             std::to_string(limits_.max_depth) +
                             " bodies inside bodies");
    }
    ASSIGN_OR_RETURN(const Json* values, ObjectMember(graph, "tensor_values"));
    for (const auto& [name, value] : values->items()) {
      auto meta = ParseMeta(value);
      if (!meta.ok()) {
        return meta.status().Prefixed("tensor '" + Shown(name) + "'");
      }
      program_.tensors.emplace(prefix + name, std::move(*meta));
    }
    ASSIGN_OR_RETURN(const Json* nodes, ArrayMember(graph, "nodes"));
    for (const Json& json : *nodes) {
      if (num_nodes_++ >= limits_.max_nodes) {
        return InvalidArgument("the program has more than " +
                               std::to_string(limits_.max_nodes) + " nodes");
      }
      ASSIGN_OR_RETURN(NodeSpec node, ParseNode(json));
      if (!prefix.empty()) Rename(node, names, prefix);
      if (std::count(std::begin(kWrappers), std::end(kWrappers), node.target) >
          0) {
        RETURN_IF_ERROR(Inline(json, node, depth));
        continue;
      }
      if (node.target == kBranches || node.target == kLoop ||
          node.target == kScan || node.target == kMap) {
        RETURN_IF_ERROR(Separate(json, depth, node));
      }
      program_.nodes.push_back(std::move(node));
    }
    return OkStatus();
  }

 private:
  static void Rename(Argument& argument, const Names& names,
                     const std::string& prefix) {
    if (argument.kind == Argument::Kind::kTensor ||
        argument.kind == Argument::Kind::kScalar) {
      const std::string& name = argument.kind == Argument::Kind::kTensor
                                    ? argument.tensors[0]
                                    : argument.scalars[0].name;
      if (const auto found = names.find(name);
          !name.empty() && found != names.end()) {
        argument = found->second;
        return;
      }
    }
    for (std::string& tensor : argument.tensors) {
      const auto found = names.find(tensor);
      if (found != names.end() && !found->second.tensors.empty()) {
        tensor = found->second.tensors[0];
      } else if (!tensor.empty()) {
        tensor = prefix + tensor;
      }
    }
    for (Scalar& scalar : argument.scalars) {
      const auto found = names.find(scalar.name);
      if (found != names.end() && !found->second.scalars.empty()) {
        scalar = found->second.scalars[0];
      } else if (!scalar.name.empty()) {
        scalar.name = prefix + scalar.name;
      }
    }
  }

  static void Rename(NodeSpec& node, const Names& names,
                     const std::string& prefix) {
    node.name = prefix + node.name;
    for (auto& [name, argument] : node.inputs) Rename(argument, names, prefix);
    for (Argument& argument : node.outputs) Rename(argument, names, prefix);
  }

  // The body of the wrapper, and nodes that call its results as the wrapper's.
  Status Inline(const Json& json, const NodeSpec& node, int depth) {
    size_t place = 0;
    while (place < node.inputs.size() &&
           node.inputs[place].second.kind != Argument::Kind::kGraph) {
      ++place;
    }
    if (place == node.inputs.size()) return Bad(node, "has no body");
    if (node.target == "higher_order.wrap_with_autocast" && place > 2 &&
        !node.inputs[2].second.scalars.empty() &&
        node.inputs[2].second.scalars[0].integer != 0) {
      return Unimplemented(
          "node '" + Shown(node.name) +
          "' computes under autocast, whose casts are not in the file; export "
          "the program's run_decompositions(), which writes them out");
    }
    ASSIGN_OR_RETURN(const Json* graph, BodyAt(json, place));
    std::vector<Argument> operands;
    for (size_t i = place + 1; i < node.inputs.size(); ++i) {
      const Argument& operand = node.inputs[i].second;
      if (operand.kind != Argument::Kind::kText) operands.push_back(operand);
    }
    operands = Singles(operands);
    ASSIGN_OR_RETURN(
        const std::vector<Argument> results,
        Insert(*graph, operands, node, node.name + "/", depth + 1));
    const std::vector<Argument> wanted = Singles(node.outputs);
    if (wanted.size() != results.size()) {
      return Bad(node, "has another number of results than its body");
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      RETURN_IF_ERROR(Call(node, results[i], wanted[i]));
    }
    return OkStatus();
  }

  // The nodes of a body, with the operands for what it calls its inputs; its
  // results by their names in the program.
  StatusOr<std::vector<Argument>> Insert(const Json& graph,
                                         const std::vector<Argument>& operands,
                                         const NodeSpec& node,
                                         const std::string& prefix, int depth) {
    ASSIGN_OR_RETURN(const std::vector<Argument> formals,
                     Arguments(graph, "inputs"));
    ASSIGN_OR_RETURN(std::vector<Argument> results,
                     Arguments(graph, "outputs"));
    if (formals.size() != operands.size()) {
      return Bad(node, "has another number of operands than its body");
    }
    Names names;
    for (size_t i = 0; i < formals.size(); ++i) {
      const Argument& formal = formals[i];
      if (formal.kind == Argument::Kind::kTensor) {
        names.emplace(formal.tensors[0], operands[i]);
      } else if (formal.kind == Argument::Kind::kScalar &&
                 !formal.scalars[0].name.empty()) {
        names.emplace(formal.scalars[0].name, operands[i]);
      }
    }
    RETURN_IF_ERROR(Graph(graph, names, prefix, depth));
    for (Argument& result : results) Rename(result, names, prefix);
    return results;
  }

  // Bodies become programs: one operand after another is left in the node.
  Status Separate(const Json& json, int depth, NodeSpec& node) {
    const size_t num_bodies =
        node.target == kBranches || node.target == kLoop ? 2 : 1;
    std::vector<const Json*> graphs;
    std::vector<std::vector<Argument>> lists;  // of operands
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Argument& input = node.inputs[i].second;
      if (input.kind == Argument::Kind::kGraph) {
        ASSIGN_OR_RETURN(graphs.emplace_back(), BodyAt(json, i));
      } else if (input.kind == Argument::Kind::kTensors ||
                 input.kind == Argument::Kind::kScalars) {
        // An empty list has no operands, not one that is none.
        lists.emplace_back();
        if (!input.tensors.empty() || !input.scalars.empty()) {
          lists.back() = Singles({input});
        }
      } else {
        lists.push_back(Singles({input}));
      }
    }
    // cond(condition, …), while_loop(values, …), scan(values, lists, …),
    // map(lists, …)
    const size_t least = node.target == kScan ? 2 : 1;
    if (graphs.size() != num_bodies || lists.size() < least) {
      return Bad(node, "lacks bodies or operands");
    }
    if (node.target == kBranches && lists[0].size() != 1) {
      return Bad(node, "has no condition");
    }
    if (node.target == kLoop || node.target == kScan) {
      node.num_carried = lists[0].size();
    }
    if (node.target == kScan) node.num_scanned = lists[1].size();
    if (node.target == kMap) node.num_scanned = lists[0].size();
    if ((node.target == kScan || node.target == kMap) &&
        node.num_scanned == 0) {
      return Bad(node, "has no list whose items it takes");
    }
    std::vector<Argument> operands;
    for (const auto& list : lists) {
      operands.insert(operands.end(), list.begin(), list.end());
    }
    if (node.target == kLoop) {
      ASSIGN_OR_RETURN(auto body,
                       LoopBody(*graphs[0], *graphs[1], depth + 1, node));
      node.bodies.push_back(std::move(body));
      ASSIGN_OR_RETURN(
          const std::vector<Argument> goes_on,
          Insert(*graphs[0], operands, node, node.name + "/", depth + 1));
      operands.insert(operands.begin(), goes_on.begin(), goes_on.end());
    } else {
      for (const Json* graph : graphs) {
        ASSIGN_OR_RETURN(auto body, Body(*graph, depth + 1));
        node.bodies.push_back(std::move(body));
      }
    }
    node.inputs.clear();
    for (Argument& operand : operands) {
      node.inputs.emplace_back("", std::move(operand));
    }
    node.outputs = Singles(node.outputs);
    return OkStatus();
  }

  StatusOr<std::shared_ptr<Program>> Body(const Json& graph, int depth) {
    auto body = std::make_shared<Program>();
    RETURN_IF_ERROR(
        NodeReader(limits_, *body, num_nodes_).Graph(graph, {}, "", depth));
    ASSIGN_OR_RETURN(const std::vector<Argument> formals,
                     Arguments(graph, "inputs"));
    for (const Argument& formal : formals) {
      body->inputs.emplace_back().argument = formal;
    }
    ASSIGN_OR_RETURN(const std::vector<Argument> results,
                     Arguments(graph, "outputs"));
    for (const Argument& result : results) {
      body->outputs.emplace_back().argument = result;
    }
    return body;
  }

  // The body's nodes, then those of the condition on its results.
  StatusOr<std::shared_ptr<Program>> LoopBody(const Json& condition,
                                              const Json& graph, int depth,
                                              const NodeSpec& node) {
    ASSIGN_OR_RETURN(auto body, Body(graph, depth));
    std::vector<Argument> values;
    for (const OutputSpec& spec : body->outputs) {
      values.push_back(spec.argument);
    }
    if (values.size() != node.num_carried ||
        body->inputs.size() < values.size()) {
      return Bad(node, "has a body that makes another number of values");
    }
    for (size_t i = values.size(); i < body->inputs.size(); ++i) {
      values.push_back(body->inputs[i].argument);
    }
    NodeReader inside(limits_, *body, num_nodes_);
    ASSIGN_OR_RETURN(
        const std::vector<Argument> goes_on,
        inside.Insert(condition, values, node, "condition/", depth));
    if (goes_on.size() != 1) return Bad(node, "has not one condition");
    OutputSpec first;
    first.argument = goes_on[0];
    body->outputs.insert(body->outputs.begin(), std::move(first));
    return body;
  }

  static StatusOr<const Json*> BodyAt(const Json& node, size_t input) {
    ASSIGN_OR_RETURN(const Json* inputs, ArrayMember(node, "inputs"));
    ASSIGN_OR_RETURN(const Json* arg, Member((*inputs)[input], "arg"));
    ASSIGN_OR_RETURN(const Json* body, ObjectMember(*arg, "as_graph"));
    return ObjectMember(*body, "graph");
  }

  // From now on `result` is called `wanted`.
  Status Call(const NodeSpec& node, const Argument& result,
              const Argument& wanted) {
    if (wanted.kind == Argument::Kind::kNone) return OkStatus();
    if (wanted.kind != result.kind) {
      return Bad(node, "has results of other kinds than its body");
    }
    NodeSpec named;
    named.name = node.name;
    named.outputs = {wanted};
    if (wanted.kind == Argument::Kind::kTensor) {
      named.target = "aten.alias.default";
      named.inputs = {{"self", result}};
    } else if (wanted.kind == Argument::Kind::kScalar) {
      Argument zero;
      zero.kind = Argument::Kind::kScalar;
      zero.scalars = {Scalar::Int(0)};
      named.target = "_operator.add";
      named.inputs = {{"a", result}, {"b", zero}};
    } else {
      return OkStatus();
    }
    program_.nodes.push_back(std::move(named));
    return OkStatus();
  }

  static StatusOr<std::vector<Argument>> Arguments(const Json& graph,
                                                   const char* key) {
    std::vector<Argument> arguments;
    ASSIGN_OR_RETURN(const Json* list, ArrayMember(graph, key));
    for (const Json& json : *list) {
      ASSIGN_OR_RETURN(arguments.emplace_back(), ParseArgument(json));
    }
    return Singles(arguments);
  }

  static Status Bad(const NodeSpec& node, std::string_view what) {
    return InvalidArgument("node '" + Shown(node.name) + "' (" +
                           Shown(node.target) + ") " + std::string(what));
  }

  const ImportLimits& limits_;
  Program& program_;
  int64_t& num_nodes_;
};

}  // namespace

Status ParseGraph(const Json& graph, const ImportLimits& limits,
                  Program& program) {
  int64_t num_nodes = 0;
  return NodeReader(limits, program, num_nodes).Graph(graph, {}, "", 0);
}

}  // namespace millrace::models::graph::pt2
