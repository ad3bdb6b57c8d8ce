// millrace quantize: our own post-training quantisation. Writes a side file
// that `run --precision int8` reads.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/op.h"
#include "models/graph/quantize/calibrate.h"
#include "models/graph/sample_inputs.h"
#include "server/cli/args.h"
#include "server/cli/graph_options.h"
#include "server/cli/model_kind.h"
#include "server/cli/tool_model.h"
#include "server/cli/verbs.h"

namespace millrace::server {
namespace {

namespace graph = models::graph;
using models::Tensor;

constexpr FlagSpec kFlags[] = {
    {"calibration", "A.npz,B.npz,…", "samples of the inputs, a file each"},
    {"output", "FILE", "what to write (default: MODEL.quant.json)"},
    {"method", "NAME", "minmax, percentile or mse (default minmax)"},
    {"tables", "TYPE", "rows of embedding tables: int8 (default), f16 or f32"},
    {"max-error", "E",
     "layers that cost more alone stay in f32 (default 0.05)"},
    kThreadsFlag,
    kIsaFlag,
};
constexpr VerbSpec kVerb = {
    "quantize",
    "MODEL",
    "Chooses the ranges of an ONNX or PyTorch (.pt2) graph's layers on "
    "samples,\n"
    "prints what each layer and each embedding table costs alone, and writes "
    "both for\n"
    "`run --precision int8`.",
    kFlags,
    1,
    1};

StatusOr<double> ReadMaxError(const ParsedArgs& args) {
  const std::string text = args.Text("max-error", "0.05");
  char* end = nullptr;
  const double most = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() || !(most >= 0)) {
    return UsageError("--max-error must be a number from 0 on, not '" + text +
                      "'");
  }
  return most;
}

// The first node that computes with integers already; null: there is none.
const graph::Node* QuantizedNode(const graph::Graph& model) {
  constexpr std::string_view kOps[] = {
      "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear",
      "QLinearConv",    "QLinearMatMul",    "ConvInteger",
      "MatMulInteger"};
  for (const graph::Node& node : model.nodes) {
    if (std::find(std::begin(kOps), std::end(kOps), node.op->name) !=
        std::end(kOps)) {
      return &node;
    }
  }
  return nullptr;
}

Status CheckNotQuantized(const std::string& path, const graph::Graph& model) {
  const graph::Node* node = QuantizedNode(model);
  if (node == nullptr) return OkStatus();
  return FailedPrecondition("'" + path + "' is quantised already: its node '" +
                            node->name + "' is a " +
                            std::string(node->op->name) +
                            "; run and serve the file as it is, or quantise "
                            "the model it was made from");
}

Status Quantize(const ParsedArgs& args) {
  if (!args.Has("calibration")) {
    return UsageError("--calibration A.npz,B.npz is missing");
  }
  const std::string& path = args.positional()[0];
  RETURN_IF_ERROR(ExpectKind(path, FileKind::kGraph, "quantize"));
  graph::CalibrateOptions options;
  ASSIGN_OR_RETURN(options.method,
                   graph::RangeMethodOf(args.Text("method", "minmax")));
  ASSIGN_OR_RETURN(options.tables,
                   graph::TablePrecisionOf(args.Text("tables", "int8")));
  ASSIGN_OR_RETURN(options.max_error, ReadMaxError(args));
  ASSIGN_OR_RETURN(options.instance, GraphOptions(args, path));
  options.progress = ProgressLines("trying layers");
  ASSIGN_OR_RETURN(const graph::Graph model, graph::ImportGraph(path, nullptr));
  RETURN_IF_ERROR(CheckNotQuantized(path, model));
  ASSIGN_OR_RETURN(
      const auto samples,
      graph::ReadSamples(args.Text("calibration", ""), model.inputs));
  ASSIGN_OR_RETURN(graph::QuantizationTable table,
                   graph::Calibrate(model, samples, options));
  table.method = args.Text("method", "minmax");
  if (table.layers.empty()) {
    return FailedPrecondition(
        "'" + path +
        "' has no convolution, product or embedding bag with constant FP32 "
        "weights, so there is nothing to quantise");
  }
  int64_t reduced = 0;
  size_t longest = 5;
  for (const graph::QuantizedLayer& layer : table.layers) {
    longest = std::max(longest, layer.name.size());
  }
  const int width = static_cast<int>(std::min<size_t>(longest, 60));
  std::printf("%-*s %12s %12s  %-15s %s\n", width, "layer", "input from", "to",
              "error if alone", "computed in");
  for (const graph::QuantizedLayer& layer : table.layers) {
    reduced += layer.in_bytes || layer.in_halves;
    std::printf("%-*s %12.5g %12.5g  %-15.3g %s\n", width, layer.name.c_str(),
                static_cast<double>(layer.low), static_cast<double>(layer.high),
                layer.error, std::string(PrecisionName(layer)).c_str());
  }
  ASSIGN_OR_RETURN(
      const double error,
      graph::QuantizationError(model, table, samples, options.instance));
  const std::string expected = path + ".quant.json";
  const std::string output = args.Text("output", expected);
  std::ofstream file(output, std::ios::binary);
  file << graph::QuantizationJson(table);
  if (!file.flush()) {
    return Unavailable("'" + output + "' cannot be written");
  }
  const std::string model_and_flags =
      path + " --precision int8" +
      (output == expected ? "" : " --quantization " + output);
  std::printf(
      "%s: %lld of %zu layers reduced, error %.3g together\n"
      "(error: what of the results changes, root mean squares; 0.01 is 1 %%)\n"
      "next: millrace run %s\n"
      "   or: millrace serve %s\n",
      output.c_str(), static_cast<long long>(reduced), table.layers.size(),
      error, model_and_flags.c_str(), model_and_flags.c_str());
  return OkStatus();
}

}  // namespace

const VerbSpec& QuantizeVerb() { return kVerb; }
int RunQuantize(Args args) { return RunVerb(kVerb, args, Quantize); }

}  // namespace millrace::server
