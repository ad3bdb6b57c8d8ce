#include "server/cli/graph_inputs.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "models/graph/sample_inputs.h"

namespace millrace::server {
namespace {

namespace graph = models::graph;
using models::Tensor;

// "batch=8,length=128"
StatusOr<std::map<std::string, int64_t>> ReadSizes(const std::string& text) {
  std::map<std::string, int64_t> sizes;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = std::string_view(text).substr(at, end - at);
    const size_t equals = item.find('=');
    int64_t size = 0;
    if (equals != item.npos) {
      const char* last = item.data() + item.size();
      const auto read = std::from_chars(item.data() + equals + 1, last, size);
      if (read.ec != std::errc() || read.ptr != last) size = 0;
    }
    if (size <= 0) {
      return UsageError("--sizes needs NAME=N with N from 1 on, not '" +
                        std::string(item) + "'");
    }
    sizes[std::string(item.substr(0, equals))] = size;
    at = end + 1;
  }
  return sizes;
}

}  // namespace

std::string InputsText(const ParsedArgs& args,
                       const graph::ExecutionContext& context,
                       const std::vector<Tensor>& inputs) {
  std::string text = "inputs (";
  if (args.Has("input")) {
    text += "of " + args.Text("input", "") + ")\n";
  } else {
    text += "made up";
    // Each symbol once, with the size that it has.
    std::map<std::string, int64_t> sizes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto& dims = context.inputs()[i].dims;
      for (size_t axis = 0; axis < dims.size(); ++axis) {
        if (dims[axis].symbol < 0) continue;
        const auto symbol = static_cast<size_t>(dims[axis].symbol);
        sizes.emplace(context.symbols()[symbol].name,
                      inputs[i].shape()[static_cast<int>(axis)]);
      }
    }
    if (!sizes.empty()) text += "; choose others with --sizes ";
    bool first = true;
    for (const auto& [name, size] : sizes) {
      text += (first ? "" : ",") + name + "=" + std::to_string(size);
      first = false;
    }
    text += ")\n";
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += "  " + context.inputs()[i].name + " " +
            models::TypeText(inputs[i].dtype(), inputs[i].shape()) + "\n";
  }
  return text;
}

StatusOr<std::vector<Tensor>> GraphInputs(
    const ParsedArgs& args, const graph::ExecutionContext& context) {
  if (args.Has("input")) {
    if (args.Has("sizes")) {
      return UsageError(
          "--sizes is for made-up inputs, --input brings its own");
    }
    return graph::ReadInputs(args.Text("input", ""), context.inputs());
  }
  ASSIGN_OR_RETURN(auto sizes, ReadSizes(args.Text("sizes", "")));
  auto inputs = graph::SampleInputs(context.compiled_graph()->graph(),
                                    {.sizes = std::move(sizes)},
                                    graph::LeftOutSizes::kLikely);
  if (inputs.ok()) return inputs;
  return InvalidArgument(std::string(inputs.status().message()) +
                         "; choose sizes with --sizes NAME=N or give a file "
                         "with --input IN.npz");
}

}  // namespace millrace::server
