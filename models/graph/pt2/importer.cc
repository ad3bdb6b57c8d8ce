// Walks the nodes in the file's order. Views are lowered a second time when
// what they look at has changed in place since, and a node that fails does not
// end the walk, so that the report names every node that cannot be imported.
#include "models/graph/pt2/importer.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "models/graph/pt2/aliases.h"
#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/bodies.h"
#include "models/graph/pt2/json_fields.h"
#include "models/graph/pt2/port_dims.h"
#include "models/graph/pt2/strides.h"
#include "models/graph/pt2/unsupported.h"

namespace millrace::models::graph::pt2 {
namespace {

// "aten.relu_.default" → "aten.relu.default"; empty when it is none that
// changes its operand.
std::string WithoutUnderscore(std::string_view target) {
  const size_t overload = target.rfind('.');
  constexpr std::string_view kOperator = "aten.__i";  // a &= b
  if (target.starts_with(kOperator)) {
    return "aten.__" + std::string(target.substr(kOperator.size()));
  }
  if (overload == target.npos || overload < 2 || target[overload - 1] != '_' ||
      target[overload - 2] == '_') {
    return "";
  }
  return std::string(target.substr(0, overload - 1)) +
         std::string(target.substr(overload));
}

class Importer : public Names {
 public:
  Importer(Pt2Archive& archive, const Program& program, ImportReport* report,
           const ImportLimits& limits)
      : archive_(archive),
        program_(program),
        report_(report),
        limits_(limits),
        emit_(&graph_, limits.max_nodes) {}

  StatusOr<Graph> Run() {
    RETURN_IF_ERROR(AddInputs());
    RETURN_IF_ERROR(Walk());
    RETURN_IF_ERROR(UnsupportedStatus(*report_));
    RETURN_IF_ERROR(AddOutputs());
    RETURN_IF_ERROR(graph_.Validate());
    return std::move(graph_);
  }

  // Of a node's body. The number of the trip and the condition stand first in
  // that of a loop.
  StatusOr<Graph> RunBody(bool of_loop) {
    if (of_loop) {
      graph_.AddInput("trip", DType::kI64, {});
      graph_.AddInput("goes_on", DType::kBool, {});
    }
    RETURN_IF_ERROR(AddInputs());
    RETURN_IF_ERROR(Walk());
    if (!failed_.empty()) {
      return FailedPrecondition("a node of its body failed");
    }
    RETURN_IF_ERROR(CheckUnchanged());
    RETURN_IF_ERROR(AddOutputs());
    RETURN_IF_ERROR(graph_.Validate());
    return std::move(graph_);
  }

  // Names:
  Operand Tensor(const std::string& name) override {
    static const TensorMeta kUnknown;
    const TensorMeta* meta = Meta(name);
    const ValueId value = aliases_.Current(name, remake_);
    if (value == kNoValue || meta == nullptr) {
      // What a node that failed would have made: the report has that one.
      emit_.Fail(failed_.contains(name)
                     ? FailedPrecondition("its operand failed")
                     : InvalidArgument("there is no tensor '" + Shown(name) +
                                       "' before it"));
      return {.id = kNoValue, .meta = meta != nullptr ? meta : &kUnknown};
    }
    return {.id = value, .meta = meta};
  }

  Num Number(const std::string& name) override {
    const auto found = numbers_.find(name);
    if (found != numbers_.end()) return found->second;
    emit_.Fail(failed_.contains(name)
                   ? FailedPrecondition("its operand failed")
                   : InvalidArgument("there is no number '" + Shown(name) +
                                     "' before it"));
    return Num::Of(1);
  }

  const TensorMeta* Meta(const std::string& name) override {
    const auto found = program_.tensors.find(name);
    return found == program_.tensors.end() ? nullptr : &found->second;
  }

 private:
  Status Walk();
  Status CheckUnchanged();
  Status AddInputs();
  Status AddUserInput(const InputSpec& spec);
  Status AddOutputs();
  Status CheckNew(const NodeSpec& node) const;
  bool IsComplex(const NodeSpec& node);
  Status Lower(const NodeSpec& node);
  Status LowerInPlace(const NodeSpec& node, const AtenOp& op);
  Status LowerBranches(const NodeSpec& node);
  void Define(const NodeSpec& node, const AtenOp& op, const Lowering& n);
  bool SharesMemory(const AtenOp& op, const std::string& of,
                    const std::string& name);
  void Report(const NodeSpec& node, const Status& status);

  Pt2Archive& archive_;
  const Program& program_;
  ImportReport* report_;
  const ImportLimits limits_;
  Graph graph_;
  Emitter emit_;
  Aliases aliases_;
  std::unordered_map<std::string, Num> numbers_;
  PortDims dims_{program_, &graph_};
  std::vector<std::pair<std::string, ValueId>> taken_;  // tensors of the user
  std::unordered_set<std::string> failed_;              // names no node made
  std::unordered_set<std::string> state_;  // parameters, buffers, constants

  const Aliases::Remake remake_ = [this](const NodeSpec& node,
                                         const AtenOp& op) {
    Lowering n(node, *this, emit_);
    op.lower(n);
    for (size_t i = 0; i < n.outputs().size(); ++i) {
      aliases_.Renew(n.output_names()[i], n.outputs()[i]);
    }
  };
  const Aliases::WriteBack write_back_ = [this](const NodeSpec& node,
                                                const AtenOp& op, ValueId part,
                                                size_t view) {
    Lowering n(node, *this, emit_);
    const Operand whole = Tensor(node.inputs[0].second.tensors[0]);
    if (op.write_back != nullptr) {
      return op.write_back(n, whole, part, view);
    }
    if (n.num_outputs() != 1) return kNoValue;
    return emit_.ReshapeLike(part, whole.id);
  };
};

Status Importer::Walk() {
  for (const NodeSpec& node : program_.nodes) {
    emit_.SetName(Shown(node.name));
    const Status status = Lower(node);
    if (!status.ok()) Report(node, status);
    if (static_cast<int64_t>(graph_.nodes.size()) > limits_.max_nodes) {
      return ResourceExhausted("the program becomes more than " +
                               std::to_string(limits_.max_nodes) + " nodes");
    }
  }
  return OkStatus();
}

// A body's inputs are the program's values, which do not change.
Status Importer::CheckUnchanged() {
  for (const auto& [name, value] : taken_) {
    if (aliases_.Current(name, remake_) != value) {
      return Unimplemented("its body changes its operand '" + Shown(name) +
                           "' in place");
    }
  }
  return OkStatus();
}

Status Importer::AddUserInput(const InputSpec& spec) {
  const Argument& argument = spec.argument;
  if (argument.kind == Argument::Kind::kScalar &&
      argument.scalars[0].kind == Scalar::Kind::kName) {
    const std::string& name = argument.scalars[0].name;
    numbers_[name] = {.id = graph_.AddInput(Shown(name), DType::kI64, {})};
    return OkStatus();
  }
  if (argument.kind != Argument::Kind::kTensor) {
    return OkStatus();  // a number or a text that the export has fixed
  }
  const std::string& name = argument.tensors[0];
  const TensorMeta* meta = Meta(name);
  if (meta == nullptr || aliases_.Has(name)) {
    return InvalidArgument("the input '" + Shown(name) +
                           "' has no type or is there twice");
  }
  if (meta->is_complex) {
    return Unimplemented("the input '" + Shown(name) +
                         "' is of complex numbers");
  }
  const ValueId value =
      graph_.AddInput(Shown(name), meta->dtype, dims_.OfInput(*meta));
  aliases_.Define(name, value);
  taken_.emplace_back(name, value);
  return OkStatus();
}

Status Importer::AddInputs() {
  for (const InputSpec& spec : program_.inputs) {
    if (spec.kind == InputSpec::Kind::kUser) {
      RETURN_IF_ERROR(AddUserInput(spec));
      continue;
    }
    const std::string& name = spec.argument.tensors[0];
    if (aliases_.Has(name)) {
      return InvalidArgument("the input '" + Shown(name) + "' is there twice");
    }
    if (spec.kind == InputSpec::Kind::kToken) {
      aliases_.Define(name,
                      emit_.Constant(models::Tensor::Make(DType::kF32, {0})));
      continue;
    }
    ASSIGN_OR_RETURN(models::Tensor tensor,
                     spec.kind == InputSpec::Kind::kWeight
                         ? archive_.Weight(spec.key)
                         : archive_.Constant(spec.key));
    aliases_.Define(name,
                    graph_.AddConstant(Shown(spec.key), std::move(tensor)));
    state_.insert(name);
  }
  return OkStatus();
}

bool Importer::SharesMemory(const AtenOp& op, const std::string& of,
                            const std::string& name) {
  const TensorMeta* from = Meta(of);
  const TensorMeta* to = Meta(name);
  if (from == nullptr || to == nullptr) return false;
  switch (op.alias) {
    case Alias::kNever:
      return false;
    case Alias::kAlways:
      return true;
    case Alias::kIfSameType:
      return from->dtype == to->dtype;
    case Alias::kIfSameLayout:
      return SameStrides(*from, *to);
    case Alias::kIfStrided:
      break;
  }
  return CanBeViewed(*from, *to);
}

void Importer::Define(const NodeSpec& node, const AtenOp& op,
                      const Lowering& n) {
  const std::string* of = nullptr;
  if (op.alias != Alias::kNever && !node.inputs.empty() &&
      node.inputs[0].second.kind == Argument::Kind::kTensor) {
    of = &node.inputs[0].second.tensors[0];
    if (!aliases_.Has(*of)) of = nullptr;
  }
  for (size_t i = 0; i < n.outputs().size(); ++i) {
    const std::string& name = n.output_names()[i];
    if (name.empty() || n.outputs()[i] == kNoValue) continue;
    if (of != nullptr && SharesMemory(op, *of, name)) {
      aliases_.DefineView(name, n.outputs()[i], *of, node, op, i);
    } else {
      aliases_.Define(name, n.outputs()[i]);
    }
  }
  for (const Argument& output : node.outputs) {
    for (const Scalar& scalar : output.scalars) {
      if (scalar.kind == Scalar::Kind::kName)
        numbers_[scalar.name] = n.number();
    }
  }
}

Status Importer::LowerInPlace(const NodeSpec& node, const AtenOp& op) {
  if (node.inputs.empty() ||
      node.inputs[0].second.kind != Argument::Kind::kTensor) {
    return InvalidArgument("what it changes is no tensor");
  }
  const std::string& changed = node.inputs[0].second.tensors[0];
  Lowering n(node, *this, emit_);
  op.lower(n);
  RETURN_IF_ERROR(emit_.TakeStatus());
  if (n.outputs().empty() || n.outputs()[0] == kNoValue ||
      !aliases_.Has(changed)) {
    return InvalidArgument("it has no operand or no result");
  }
  if (state_.contains(aliases_.Owner(changed))) {
    return Unimplemented(
        "it changes a weight or buffer of the model: state is not kept "
        "between requests; export a model that was trained after eval()");
  }
  RETURN_IF_ERROR(
      aliases_.Write(changed, n.outputs()[0], remake_, write_back_));
  if (!n.output_names()[0].empty()) {
    aliases_.Rename(n.output_names()[0], changed);
  }
  return emit_.TakeStatus();
}

// Each name is given once: views are made anew by the names of their node.
Status Importer::CheckNew(const NodeSpec& node) const {
  std::unordered_set<std::string_view> own;
  for (const Argument& output : node.outputs) {
    for (const std::string& name : output.tensors) {
      if (name.empty()) continue;
      if (aliases_.Has(name) || !own.insert(name).second) {
        return InvalidArgument("there is a tensor '" + Shown(name) +
                               "' already");
      }
    }
  }
  return OkStatus();
}

Status Importer::LowerBranches(const NodeSpec& node) {
  const ImportBody import = [this](const Program& body, bool of_loop) {
    return Importer(archive_, body, report_, limits_).RunBody(of_loop);
  };
  ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                   LowerBodies(node, *this, emit_, import));
  const Graph& body = *graph_.nodes.back().bodies[0];
  const size_t skipped = body.outputs.size() - results.size();
  for (size_t i = 0; i < results.size(); ++i) {
    const Argument& output = node.outputs[i];
    if (output.kind == Argument::Kind::kTensor) {
      aliases_.Define(output.tensors[0], results[i]);
    } else if (output.kind == Argument::Kind::kScalar) {
      numbers_[output.scalars[0].name] = {
          .dtype = body.outputs[skipped + i].dtype, .id = results[i]};
    }
  }
  return OkStatus();
}

// Whether the node takes or gives complex numbers.
bool Importer::IsComplex(const NodeSpec& node) {
  const auto has = [&](const Argument& argument) {
    return std::any_of(argument.tensors.begin(), argument.tensors.end(),
                       [&](const std::string& name) {
                         const TensorMeta* meta = Meta(name);
                         return meta != nullptr && meta->is_complex;
                       });
  };
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](const auto& input) { return has(input.second); }) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), has);
}

Status Importer::Lower(const NodeSpec& node) {
  RETURN_IF_ERROR(CheckNew(node));
  if (!node.bodies.empty()) return LowerBranches(node);
  if (IsComplex(node)) {
    const AtenOp* op = FindComplexAten(node.target);
    if (op == nullptr) {
      op = FindComplexAten(WithoutUnderscore(node.target));
      if (op != nullptr) return LowerInPlace(node, *op);
      return Unimplemented("there is no such operator of complex numbers");
    }
    Lowering n(node, *this, emit_);
    op->lower(n);
    RETURN_IF_ERROR(emit_.TakeStatus());
    Define(node, *op, n);
    return OkStatus();
  }
  if (const AtenOp* op = FindAten(node.target)) {
    Lowering n(node, *this, emit_);
    op->lower(n);
    RETURN_IF_ERROR(emit_.TakeStatus());
    Define(node, *op, n);
    return OkStatus();
  }
  if (const AtenOp* op = FindAten(WithoutUnderscore(node.target))) {
    return LowerInPlace(node, *op);
  }
  return NoSuchOperator(node.target);
}

void Importer::Report(const NodeSpec& node, const Status& status) {
  for (const Argument& output : node.outputs) {
    failed_.insert(output.tensors.begin(), output.tensors.end());
    for (const Scalar& scalar : output.scalars) failed_.insert(scalar.name);
  }
  if (status.code() == StatusCode::kFailedPrecondition) return;
  AddUnsupported(node, *this, status.message(), report_);
}

Status Importer::AddOutputs() {
  size_t leaf = 0;
  for (const OutputSpec& spec : program_.outputs) {
    const Argument& argument = spec.argument;
    if (spec.is_token) continue;
    if (spec.is_mutation) {
      if (spec.target.starts_with("user_input")) continue;
      return Unimplemented("the program writes a " + spec.target +
                           ": state is not kept between requests; export a "
                           "model that was trained after eval()");
    }
    const size_t place = leaf++;
    std::string name;
    if (place < program_.output_names.size()) {
      name = program_.output_names[place];
    }
    ValueId value = kNoValue;
    DType dtype = DType::kF32;
    if (argument.kind == Argument::Kind::kTensor) {
      if (name.empty()) name = Shown(argument.tensors[0]);
      const TensorMeta* meta = Meta(argument.tensors[0]);
      if (meta != nullptr && meta->is_complex) {
        return Unimplemented("the output '" + name + "' is of complex numbers");
      }
      value = Tensor(argument.tensors[0]).id;
    } else if (argument.kind == Argument::Kind::kScalar) {
      const Scalar& scalar = argument.scalars[0];
      if (scalar.kind != Scalar::Kind::kName) continue;
      if (name.empty()) name = Shown(scalar.name);
      const Num number = Number(scalar.name);
      dtype = number.dtype;
      value = emit_.Value(number, dtype);
    } else if (argument.kind == Argument::Kind::kNone) {
      continue;
    }
    RETURN_IF_ERROR(emit_.TakeStatus());
    if (value == kNoValue) {
      return Unimplemented("output " + std::to_string(place) +
                           " of the program is no tensor");
    }
    graph_.AddOutput(name, value);
    Port& port = graph_.outputs.back();
    port.dtype = dtype;
    if (const TensorMeta* meta =
            argument.tensors.empty() ? nullptr : Meta(argument.tensors[0])) {
      port.dtype = meta->dtype;
      port.rank_known = true;
      port.dims = dims_.OfOutput(*meta);
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<Graph> ImportArchive(Pt2Archive& archive, ImportReport* report,
                              const ImportLimits& limits) {
  ImportReport own;
  if (report == nullptr) report = &own;
  report->format = "PyTorch export, schema " + archive.program().schema_version;
  report->producer = "PyTorch " + archive.program().torch_version;
  return Importer(archive, archive.program(), report, limits).Run();
}

StatusOr<Graph> ImportPt2Bytes(std::span<const std::byte> bytes,
                               ImportReport* report,
                               const ImportLimits& limits) {
  ASSIGN_OR_RETURN(const auto archive, Pt2Archive::Parse(bytes, limits));
  return ImportArchive(*archive, report, limits);
}

}  // namespace millrace::models::graph::pt2

namespace millrace::models::graph {

StatusOr<Graph> ImportPt2(const std::string& path, ImportReport* report,
                          const ImportLimits& limits) {
  ASSIGN_OR_RETURN(const auto archive, pt2::Pt2Archive::Open(path, limits));
  return pt2::ImportArchive(*archive, report, limits);
}

}  // namespace millrace::models::graph
