// From JSON to structs. Stack traces and the like, which are most of the text,
// are skipped.
#include "models/graph/pt2/program.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "models/graph/pt2/arguments.h"
#include "models/graph/pt2/json_fields.h"
#include "models/graph/pt2/nodes.h"
#include "models/tensor/shape.h"

namespace millrace::models::graph::pt2 {
namespace {

constexpr int64_t kSchemaMajor = 8;

StatusOr<InputSpec> ParseInputSpec(const Json& json, const Json& input) {
  ASSIGN_OR_RETURN(const auto member, OnlyMember(json));
  const auto& [key, value] = member;
  InputSpec spec;
  spec.what = key;
  ASSIGN_OR_RETURN(spec.argument, ParseArgument(input));
  if (key == "user_input" || key == "constant_input") return spec;
  const bool is_tensor = spec.argument.kind == Argument::Kind::kTensor;
  if (key == "token" && is_tensor) {
    spec.kind = InputSpec::Kind::kToken;
    return spec;
  }
  spec.kind = InputSpec::Kind::kWeight;
  if (key == "parameter") {
    ASSIGN_OR_RETURN(spec.key, TextMember(*value, "parameter_name"));
  } else if (key == "buffer") {
    ASSIGN_OR_RETURN(spec.key, TextMember(*value, "buffer_name"));
    const Json* persistent = FindMember(*value, "persistent");
    if (persistent != nullptr && *persistent == false) {
      spec.kind = InputSpec::Kind::kConstant;
    }
  } else if (key == "tensor_constant") {
    spec.kind = InputSpec::Kind::kConstant;
    ASSIGN_OR_RETURN(spec.key, TextMember(*value, "tensor_constant_name"));
  } else {
    return Unimplemented("the program needs a " + Shown(key) +
                         ", which only Python can make");
  }
  if (!is_tensor) {
    return InvalidArgument("the " + key + " '" + Shown(spec.key) +
                           "' is no tensor");
  }
  return spec;
}

StatusOr<OutputSpec> ParseOutputSpec(const Json& json, const Json& output) {
  ASSIGN_OR_RETURN(const auto member, OnlyMember(json));
  OutputSpec spec;
  ASSIGN_OR_RETURN(spec.argument, ParseArgument(output));
  if (member.first == "user_output") return spec;
  spec.is_token = member.first == "token";
  if (spec.is_token) return spec;
  spec.is_mutation = true;
  spec.target = member.first;
  for (const char* key : {"buffer_name", "user_input_name"}) {
    const Json* name = FindMember(*member.second, key);
    if (name != nullptr && name->is_string())
      spec.target += " '" + Shown(name->get<std::string>()) + "'";
  }
  return spec;
}

// The names that a pytree gives its leaves; empty where it gives none.
void LeafNames(const Json& tree, const std::string& prefix, int depth,
               std::vector<std::string>& names) {
  const Json* type = FindMember(tree, "type");
  const Json* children = FindMember(tree, "children_spec");
  if (depth > 32 || type == nullptr || type->is_null() || children == nullptr ||
      !children->is_array()) {
    names.push_back(prefix);
    return;
  }
  Json keys;
  if (const Json* context = FindMember(tree, "context");
      context != nullptr && context->is_string()) {
    auto parsed = ParseJson(context->get_ref<const std::string&>());
    if (parsed.ok()) keys = std::move(*parsed);
  }
  const bool named = keys.is_array() && keys.size() == children->size();
  for (size_t i = 0; i < children->size(); ++i) {
    std::string name;
    if (named && keys[i].is_string()) {
      name = Shown(keys[i].get<std::string>());
    } else if (!prefix.empty()) {
      name = std::to_string(i);
    }
    if (!prefix.empty()) name = prefix + "." + name;
    LeafNames((*children)[i], name, depth + 1, names);
  }
}

std::vector<std::string> OutputNames(const Json& graph_module) {
  std::vector<std::string> names;
  const Json* calls = FindMember(graph_module, "module_call_graph");
  if (calls == nullptr || !calls->is_array() || calls->empty()) return names;
  const Json* signature = FindMember((*calls)[0], "signature");
  const Json* spec =
      signature != nullptr ? FindMember(*signature, "out_spec") : nullptr;
  if (spec == nullptr || !spec->is_string()) return names;
  const auto tree = ParseJson(spec->get_ref<const std::string&>());
  if (!tree.ok() || !tree->is_array() || tree->size() != 2) return names;
  LeafNames((*tree)[1], "", 0, names);
  return names;
}

Status ParseSignature(const Json& graph_module, const Json& graph,
                      Program& program) {
  ASSIGN_OR_RETURN(const Json* signature,
                   ObjectMember(graph_module, "signature"));
  ASSIGN_OR_RETURN(const Json* input_specs,
                   ArrayMember(*signature, "input_specs"));
  ASSIGN_OR_RETURN(const Json* inputs, ArrayMember(graph, "inputs"));
  ASSIGN_OR_RETURN(const Json* output_specs,
                   ArrayMember(*signature, "output_specs"));
  ASSIGN_OR_RETURN(const Json* outputs, ArrayMember(graph, "outputs"));
  if (input_specs->size() != inputs->size() ||
      output_specs->size() != outputs->size()) {
    return InvalidArgument("the program's signature does not fit its graph");
  }
  for (size_t i = 0; i < inputs->size(); ++i) {
    ASSIGN_OR_RETURN(InputSpec spec,
                     ParseInputSpec((*input_specs)[i], (*inputs)[i]));
    program.inputs.push_back(std::move(spec));
  }
  for (size_t i = 0; i < outputs->size(); ++i) {
    ASSIGN_OR_RETURN(OutputSpec spec,
                     ParseOutputSpec((*output_specs)[i], (*outputs)[i]));
    program.outputs.push_back(std::move(spec));
  }
  program.output_names = OutputNames(graph_module);
  return OkStatus();
}

Status ParseRanges(const Json& ranges, Program& program) {
  if (!ranges.is_object()) return OkStatus();
  for (const auto& [name, range] : ranges.items()) {
    auto& [least, most] = program.ranges[name];
    least = 0;
    most = std::numeric_limits<int64_t>::max();
    if (const Json* min = FindMember(range, "min_val");
        min && !min->is_null()) {
      ASSIGN_OR_RETURN(least, AsInt(*min));
    }
    if (const Json* max = FindMember(range, "max_val");
        max && !max->is_null()) {
      ASSIGN_OR_RETURN(most, AsInt(*max));
    }
  }
  return OkStatus();
}

Status ParseVersion(const Json& root, Program& program) {
  ASSIGN_OR_RETURN(const Json* version, ObjectMember(root, "schema_version"));
  ASSIGN_OR_RETURN(const Json* major_json, Member(*version, "major"));
  ASSIGN_OR_RETURN(const int64_t major, AsInt(*major_json));
  if (major != kSchemaMajor) {
    return Unimplemented(
        "the program is of schema version " + std::to_string(major) +
        ", read is " + std::to_string(kSchemaMajor) +
        "; export it again with a PyTorch that writes that (2.7 or later)");
  }
  program.schema_version = std::to_string(major);
  if (const Json* minor = FindMember(*version, "minor");
      minor && minor->is_number_integer()) {
    program.schema_version += "." + DumpJson(*minor);
  }
  if (const Json* torch = FindMember(root, "torch_version");
      torch && torch->is_string()) {
    program.torch_version = Shown(torch->get<std::string>());
  }
  return OkStatus();
}

// Complex numbers are pairs of parts along one axis more, as they lie.
Status LayOutPairs(TensorMeta& meta) {
  if (meta.rank() == Shape::kMaxRank) {
    return Unimplemented("it has " + std::to_string(meta.rank()) +
                         " dimensions of complex numbers, the limit is " +
                         std::to_string(Shape::kMaxRank - 1));
  }
  if (meta.storage_offset < 0 || meta.storage_offset > Shape::kMaxElements) {
    return InvalidArgument("it begins at element " +
                           std::to_string(meta.storage_offset));
  }
  meta.storage_offset *= 2;
  for (int64_t& stride : meta.strides) {
    if (stride > Shape::kMaxElements) {
      return InvalidArgument("it has the stride " + std::to_string(stride));
    }
    stride *= 2;
  }
  Dim parts;
  parts.hint = 2;
  meta.sizes.push_back(parts);
  meta.strides.push_back(1);
  return OkStatus();
}

JsonLimits LimitsFor(size_t bytes) {
  // No value takes fewer than two bytes.
  return {.max_depth = 96,
          .max_values = static_cast<int64_t>(bytes / 2 + 1),
          .unique_keys = true};
}

}  // namespace

const Argument* NodeSpec::Find(std::string_view argument) const {
  const auto found =
      std::find_if(inputs.begin(), inputs.end(),
                   [&](const auto& input) { return input.first == argument; });
  return found == inputs.end() ? nullptr : &found->second;
}

StatusOr<Program> ParseProgram(std::string_view json,
                               const ImportLimits& limits) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(json, LimitsFor(json.size())));
  Program program;
  RETURN_IF_ERROR(ParseVersion(root, program));
  ASSIGN_OR_RETURN(const Json* graph_module,
                   ObjectMember(root, "graph_module"));
  ASSIGN_OR_RETURN(const Json* graph, ObjectMember(*graph_module, "graph"));
  RETURN_IF_ERROR(ParseSignature(*graph_module, *graph, program));
  RETURN_IF_ERROR(ParseGraph(*graph, limits, program));
  if (const Json* ranges = FindMember(root, "range_constraints")) {
    RETURN_IF_ERROR(ParseRanges(*ranges, program));
  }
  return program;
}

StatusOr<std::unordered_map<std::string, StoredTensor>> ParseStored(
    std::string_view json) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(json, LimitsFor(json.size())));
  ASSIGN_OR_RETURN(const Json* config, ObjectMember(root, "config"));
  std::unordered_map<std::string, StoredTensor> stored;
  for (const auto& [name, value] : config->items()) {
    const std::string what = "weight '" + Shown(name) + "'";
    if (const Json* pickled = FindMember(value, "use_pickle");
        pickled && *pickled == true) {
      return Unimplemented(what +
                           " is a pickled Python object; export the model "
                           "with plain tensors");
    }
    StoredTensor tensor;
    ASSIGN_OR_RETURN(tensor.path_name, TextMember(value, "path_name"));
    ASSIGN_OR_RETURN(const Json* meta_json, ObjectMember(value, "tensor_meta"));
    auto meta = ParseMeta(*meta_json);
    if (!meta.ok()) return meta.status().Prefixed(what);
    tensor.meta = std::move(*meta);
    if (tensor.meta.is_complex) {
      const Status status = LayOutPairs(tensor.meta);
      if (!status.ok()) return status.Prefixed(what);
    }
    stored.emplace(name, std::move(tensor));
  }
  return stored;
}

}  // namespace millrace::models::graph::pt2
