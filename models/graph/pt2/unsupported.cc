#include "models/graph/pt2/unsupported.h"

#include <string>
#include <utility>

#include "models/graph/pt2/json_fields.h"

namespace millrace::models::graph::pt2 {
namespace {

constexpr size_t kMaxReported = 4096;

// "x FP32 [s0, 4]"
std::string TypedName(const std::string& tensor, Names& names) {
  std::string text = Shown(tensor);
  const TensorMeta* meta = names.Meta(tensor);
  if (meta == nullptr) return text;
  text += " " + std::string(DTypeName(meta->dtype)) + " [";
  for (size_t i = 0; i < meta->sizes.size(); ++i) {
    const Dim& dim = meta->sizes[i];
    text += (i > 0 ? ", " : "") +
            (dim.symbol.empty() ? std::to_string(dim.hint) : Shown(dim.symbol));
  }
  return text + "]";
}

}  // namespace

void AddUnsupported(const NodeSpec& node, Names& names, std::string_view why,
                    ImportReport* report) {
  if (report->unsupported.size() >= kMaxReported) return;
  UnsupportedNode row{.op = Shown(node.target),
                      .node = Shown(node.name),
                      .inputs = {},
                      .why = std::string(why)};
  for (const auto& [name, argument] : node.inputs) {
    for (const std::string& tensor : argument.tensors) {
      if (!row.inputs.empty()) row.inputs += ", ";
      row.inputs += TypedName(tensor, names);
    }
  }
  report->unsupported.push_back(std::move(row));
}

Status NoSuchOperator(std::string_view target) {
  if (target.starts_with("torch._functorch.")) {
    return Unimplemented(
        "functions that torch.vmap maps are only marked; save "
        "what run_decompositions() makes of the program");
  }
  return Unimplemented("there is no such operator");
}

}  // namespace millrace::models::graph::pt2
