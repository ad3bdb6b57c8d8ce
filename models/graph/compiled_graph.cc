#include "models/graph/compiled_graph.h"

#include <utility>
#include <vector>

#include "models/cpu/isa.h"
#include "models/graph/dim_names.h"
#include "models/graph/infer_and_fold.h"
#include "models/graph/passes/passes.h"
#include "models/graph/plan/expected_weights.h"
#include "models/graph/quantize/insert.h"
#include "models/graph/quantize/integers.h"
#include "models/graph/row_tables.h"

namespace millrace::models::graph {
namespace {

// Bytes of the weights that will be packed, as far as one knows at once; 0
// where they are few.
int64_t ExpectedBytes(const Graph& graph, const CompileOptions& options) {
  constexpr int64_t kFew = int64_t{4} << 20;
  if (options.interpret || options.quantization != nullptr) return 0;
  if (options.device != nullptr) return 0;  // it keeps most of them
  // Weights of a file that had to be parsed are in memory until they are
  // packed: with all packed pages beside them the peak would be higher.
  for (const Value& value : graph.values) {
    if (value.constant != nullptr && value.constant->is_late()) return 0;
  }
  const int64_t floats = FloatsOfLayers(graph);
  const int64_t bytes =
      options.precision == Precision::kBf16 ? floats * 2 : floats * 4;
  return bytes < kFew ? 0 : bytes;
}

// What a device has to keep at least: constants of floats, and a byte for each
// value that a quantised layer multiplies (int4, too, has a byte there). Others
// of integers are few.
int64_t WeightBytes(const Graph& graph) {
  std::vector<bool> dequantized(graph.values.size());
  for (const Node& node : graph.nodes) {
    if (!node.Is("DequantizeLinear")) continue;
    for (const ValueId id : node.outputs) {
      dequantized[static_cast<size_t>(id)] = true;
    }
  }
  // Whether something but a quantised layer reads the value.
  std::vector<bool> as_floats(graph.values.size());
  for (const Node& node : graph.nodes) {
    const bool is_quantised = !node.inputs.empty() &&
                              node.inputs[0] != kNoValue &&
                              dequantized[static_cast<size_t>(node.inputs[0])];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || (i == 1 && is_quantised)) continue;
      as_floats[static_cast<size_t>(id)] = true;
    }
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.constant == nullptr || value.constant->dtype() != DType::kF32) {
      continue;
    }
    const bool in_bytes = value.integers != nullptr && !as_floats[i];
    bytes +=
        in_bytes ? value.constant->num_elements() : value.constant->num_bytes();
  }
  return bytes;
}

}  // namespace

bool HasBf16(const std::string& isa) {
  return FindBf16Products(isa.empty() ? "auto" : isa) != nullptr;
}

StatusOr<std::shared_ptr<CompiledGraph>> CompiledGraph::Create(
    Graph graph, const CompileOptions& options) {
  RETURN_IF_ERROR(graph.Validate());
  ASSIGN_OR_RETURN(const DenseTable* dense,
                   ChooseDense(options.isa.empty() ? "auto" : options.isa));
  ASSIGN_OR_RETURN(const Int8Table* int8,
                   ChooseInt8(options.isa.empty() ? "auto" : options.isa));
  const DenseProducts* bf16 =
      FindBf16Products(options.isa.empty() ? "auto" : options.isa);
  const int64_t expected = ExpectedBytes(graph, options);
  WarmBuffer weights;
  if (expected > 0) {
    // A part more for what packing adds; what is not used costs nothing.
    ASSIGN_OR_RETURN(weights,
                     WarmBuffer::Start(expected + expected / 8, expected,
                                       options.weight_cpus, "graph weights"));
  }
  RETURN_IF_ERROR(KeepIntegers(graph));
  ASSIGN_OR_RETURN(Graph folded, InferAndFold(graph, {}));
  SeparateDims(folded);
  FoldBatchNorms(folded);
  if (options.device != nullptr) {
    RETURN_IF_ERROR(options.device->CheckFits(WeightBytes(folded)));
  }
  if (options.precision == Precision::kBf16) {
    RETURN_IF_ERROR(RoundLayers(folded, options.f32_layers));
  }
  if (options.quantization != nullptr) {
    RETURN_IF_ERROR(InsertQuantization(folded, *options.quantization));
  }
  // A device reads them whole, once.
  if (options.device == nullptr) ReadRowsAtRandom(folded);
  std::unique_ptr<OneDnnLayers> onednn;
  if (options.onednn.any()) {
    ASSIGN_OR_RETURN(const onednn::Library* library, onednn::Open());
    onednn = std::make_unique<OneDnnLayers>(*library, options.onednn);
  }
  const Kernels kernels{
      *dense, *int8, options.device == nullptr ? bf16 : nullptr, onednn.get()};
  return std::shared_ptr<CompiledGraph>(
      new CompiledGraph(std::move(folded), options, kernels, std::move(onednn),
                        std::move(weights)));
}

CompiledGraph::CompiledGraph(Graph graph, const CompileOptions& options,
                             const Kernels& kernels,
                             std::unique_ptr<OneDnnLayers> onednn,
                             WarmBuffer weights)
    : graph_(std::move(graph)),
      device_(options.device),
      onednn_(std::move(onednn)),
      kernels_(kernels),
      interprets_(options.interpret),
      plans_(graph_, kernels,
             {.max_plan_bytes = options.max_plan_bytes,
              .rows_apart = options.rows_apart,
              .tiny_alone = options.tiny_alone,
              .keep_bf16 = options.keep_bf16,
              .joins = options.joins,
              .device = device_.get()},
             std::move(weights)) {}

const BatchAxis& CompiledGraph::batch_axis() const {
  std::call_once(batch_axis_found_,
                 [this] { batch_axis_ = FindBatchAxis(graph_); });
  return batch_axis_;
}

int64_t CompiledGraph::constant_bytes() const {
  int64_t bytes = 0;
  for (const Value& value : graph_.values) {
    if (value.constant != nullptr) bytes += value.constant->num_bytes();
  }
  return bytes;
}

StatusOr<std::shared_ptr<const Prepared>> CompiledGraph::PlanFor(
    const std::vector<Tensor>& inputs, bool whole, ComputePool& pool) {
  if (interprets_) return nullptr;
  return plans_.For(inputs, whole, pool);
}

std::shared_ptr<const Prepared> CompiledGraph::TinyPlanFor(
    const std::vector<Tensor>& inputs, ComputePool& pool) {
  return interprets_ ? nullptr : plans_.KeptTiny(inputs, pool);
}

}  // namespace millrace::models::graph
