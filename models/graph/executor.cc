#include "models/graph/executor.h"

#include <utility>

#include "models/cpu/compute_pool.h"
#include "models/cpu/isa.h"
#include "models/graph/interpreter.h"
#include "models/graph/passes/passes.h"
#include "models/graph/plan/expected_weights.h"
#include "models/graph/plan_cache.h"
#include "models/graph/quantize/insert.h"
#include "models/graph/quantize/integers.h"
#include "models/graph/settle.h"
#include "models/memory/huge_buffer.h"
#include "models/memory/warm_buffer.h"

namespace millrace::models::graph {
namespace {

class GraphExecutor : public Executor {
 public:
  GraphExecutor(Graph graph, const ExecutorOptions& options,
                const Kernels& kernels, WarmBuffer weights)
      : graph_(std::move(graph)),
        options_(options),
        kernels_(kernels),
        pool_(options.cpus, "graph"),
        plans_(graph_, kernels,
               {.num_members = pool_.size(),
                .max_plans = options.max_plans,
                .max_bytes = options.max_bytes,
                .rows_apart = options.rows_apart,
                .keep_bf16 = options.keep_bf16,
                .joins = options.joins},
               std::move(weights), pool_) {}

  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                    const RunOptions& run) override {
    RETURN_IF_ERROR(CheckInputs(graph_.inputs, graph_.symbols, inputs));
    last_ = nullptr;
    if (!options_.interpret) {
      ASSIGN_OR_RETURN(last_, plans_.For(inputs, run.trace != nullptr));
    }
    if (last_ == nullptr) {
      return Interpret(graph_, inputs, {.stopped = run.stopped});
    }
    if (last_->rows != nullptr) {
      RETURN_IF_ERROR(HaveArena(last_->rows->arena_bytes()));
      return last_->rows->Run(inputs, last_->batch, arena_.data(), bindings_,
                              pool_, run.stopped);
    }
    RETURN_IF_ERROR(HaveArena(last_->whole->arena_bytes()));
    return last_->whole->Run(inputs, arena_.data(), bindings_[0], pool_,
                             run.stopped, run.trace);
  }

  StatusOr<TeamPeaks> MeasurePeaks() override {
    int64_t weight_bytes = 0;
    for (const Value& value : graph_.values) {
      if (value.constant != nullptr)
        weight_bytes += value.constant->num_bytes();
    }
    return graph::MeasurePeaks(pool_, kernels_, weight_bytes);
  }

  const std::vector<Port>& inputs() const override { return graph_.inputs; }
  const std::vector<Port>& outputs() const override { return graph_.outputs; }
  const std::vector<Symbol>& symbols() const override { return graph_.symbols; }
  std::string PlanText() const override {
    if (last_ == nullptr) return "";
    return last_->rows != nullptr ? last_->rows->Text() : last_->whole->Text();
  }
  int64_t ArenaBytes() const override {
    if (last_ == nullptr) return 0;
    return last_->rows != nullptr ? last_->rows->arena_bytes()
                                  : last_->whole->arena_bytes();
  }

 private:
  Status HaveArena(int64_t bytes) {
    if (arena_.size() >= bytes && arena_.data() != nullptr) return OkStatus();
    ASSIGN_OR_RETURN(arena_, HugeBuffer::Allocate(bytes, true, "graph values"));
    return OkStatus();
  }

  const Graph graph_;
  const ExecutorOptions options_;
  const Kernels kernels_;
  ComputePool pool_;
  HugeBuffer arena_;
  std::vector<Bindings> bindings_{1};
  PlanCache plans_;
  const Prepared* last_ = nullptr;  // what the last Run used
};

// Bytes of the weights that will be packed, as far as one knows at once; 0
// where they are few.
int64_t ExpectedBytes(const Graph& graph, const ExecutorOptions& options) {
  constexpr int64_t kFew = int64_t{4} << 20;
  if (options.interpret || options.quantization != nullptr) return 0;
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

}  // namespace

bool HasBf16(const std::string& isa) {
  return FindBf16Products(isa.empty() ? "auto" : isa) != nullptr;
}

StatusOr<std::unique_ptr<Executor>> Executor::Create(
    Graph graph, const ExecutorOptions& options) {
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
                                       options.cpus, "graph weights"));
  }
  RETURN_IF_ERROR(KeepIntegers(graph));
  ASSIGN_OR_RETURN(Graph settled, Settle(graph, {}));
  FoldBatchNorms(settled);
  if (options.precision == Precision::kBf16) {
    RETURN_IF_ERROR(RoundLayers(settled, options.f32_layers));
  }
  if (options.quantization != nullptr) {
    RETURN_IF_ERROR(InsertQuantization(settled, *options.quantization));
  }
  return std::unique_ptr<Executor>(new GraphExecutor(
      std::move(settled), options, {*dense, *int8, bf16}, std::move(weights)));
}

}  // namespace millrace::models::graph
