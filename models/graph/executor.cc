#include "models/graph/executor.h"

#include <list>
#include <utility>

#include "models/backend/memory.h"
#include "models/cpu/compute_pool.h"
#include "models/cpu/isa.h"
#include "models/graph/interpreter.h"
#include "models/graph/op.h"
#include "models/graph/passes/passes.h"
#include "models/graph/plan/packed_weights.h"
#include "models/graph/plan/plan.h"
#include "models/graph/settle.h"

namespace millrace::models::graph {
namespace {

// Inputs of so few integers may decide the course of a graph (a sampling rate,
// a length): where shapes depend on data, plans are made for their values.
constexpr int64_t kMostKeyIntegers = 16;

class GraphExecutor : public Executor {
 public:
  GraphExecutor(Graph graph, const ExecutorOptions& options,
                const DenseTable& dense)
      : graph_(std::move(graph)),
        options_(options),
        dense_(dense),
        interprets_(options.interpret),
        pool_(options.cpus, "graph") {}

  StatusOr<std::vector<Tensor>> Run(
      const std::vector<Tensor>& inputs) override {
    return RunTraced(inputs, nullptr);
  }

  StatusOr<std::vector<Tensor>> RunTraced(const std::vector<Tensor>& inputs,
                                          Trace* trace) override {
    RETURN_IF_ERROR(CheckInputs(graph_.inputs, graph_.symbols, inputs));
    if (!interprets_) {
      ASSIGN_OR_RETURN(Plan * plan, PlanFor(inputs));
      if (plan != nullptr) {
        RETURN_IF_ERROR(HaveArena(plan->arena_bytes()));
        last_ = plan;
        return plan->Run(inputs, arena_.data(), pool_, trace);
      }
    }
    return Interpret(graph_, inputs);
  }

  StatusOr<TeamPeaks> MeasurePeaks() override {
    return graph::MeasurePeaks(pool_, dense_);
  }

  const std::vector<Port>& inputs() const override { return graph_.inputs; }
  const std::vector<Port>& outputs() const override { return graph_.outputs; }
  const std::vector<Symbol>& symbols() const override { return graph_.symbols; }
  std::string PlanText() const override {
    return last_ != nullptr ? last_->Text() : "";
  }

 private:
  using Key = std::vector<int64_t>;
  struct Kept {
    Key key;
    std::unique_ptr<Plan> plan;
  };

  bool IsKeyed(const Tensor& tensor) const {
    return by_value_ && tensor.dtype() == DType::kI64 &&
           tensor.num_elements() <= kMostKeyIntegers;
  }

  Key KeyOf(const std::vector<Tensor>& inputs) const {
    Key key;
    for (const Tensor& input : inputs) {
      key.push_back(input.shape().rank());
      key.insert(key.end(), input.shape().begin(), input.shape().end());
      if (!IsKeyed(input)) continue;
      const auto* values = input.data<int64_t>();
      key.insert(key.end(), values, values + input.num_elements());
    }
    return key;
  }

  // Null: the graph can only be interpreted, as it is from now on.
  StatusOr<Plan*> PlanFor(const std::vector<Tensor>& inputs) {
    const Key key = KeyOf(inputs);
    for (auto kept = plans_.begin(); kept != plans_.end(); ++kept) {
      if (kept->key != key) continue;
      plans_.splice(plans_.begin(), plans_, kept);
      return plans_.front().plan.get();
    }
    auto settled = SettleFor(inputs);
    if (!settled.ok() && IsNeedsBytes(settled.status())) {
      if (by_value_) {
        interprets_ = true;
        return nullptr;
      }
      by_value_ = true;
      plans_.clear();
      last_ = nullptr;
      return PlanFor(inputs);
    }
    RETURN_IF_ERROR(settled.status());
    ASSIGN_OR_RETURN(const Graph optimised, Optimise(*std::move(settled)));
    ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan,
                     Plan::Create(optimised, pool_.size(), dense_, packed_));
    while (static_cast<int32_t>(plans_.size()) >= options_.max_plans) {
      plans_.pop_back();
    }
    plans_.push_front({key, std::move(plan)});
    return plans_.front().plan.get();
  }

  StatusOr<Graph> SettleFor(const std::vector<Tensor>& inputs) const {
    std::vector<ValueType> types;
    std::vector<const Tensor*> known;
    for (const Tensor& input : inputs) {
      types.push_back({input.dtype(), input.shape()});
      known.push_back(IsKeyed(input) ? &input : nullptr);
    }
    // A plan outlives the request that it was made for.
    std::vector<Tensor> copies;
    copies.reserve(known.size());
    for (const Tensor*& value : known) {
      if (value != nullptr) value = &copies.emplace_back(value->Copy());
    }
    return Settle(graph_, types, known);
  }

  Status HaveArena(int64_t bytes) {
    if (arena_.size() >= bytes && arena_.data() != nullptr) return OkStatus();
    ASSIGN_OR_RETURN(arena_, HugeBuffer::Allocate(bytes, true, "graph values"));
    return OkStatus();
  }

  const Graph graph_;
  const ExecutorOptions options_;
  const DenseTable& dense_;
  bool interprets_;
  bool by_value_ = false;  // plans depend on the values of small inputs
  ComputePool pool_;
  HugeBuffer arena_;
  PackedWeights packed_;   // outlives the plans
  std::list<Kept> plans_;  // the last used first
  Plan* last_ = nullptr;
};

}  // namespace

StatusOr<std::unique_ptr<Executor>> Executor::Create(
    Graph graph, const ExecutorOptions& options) {
  RETURN_IF_ERROR(graph.Validate());
  ASSIGN_OR_RETURN(const DenseTable* dense,
                   ChooseDense(options.isa.empty() ? "auto" : options.isa));
  ASSIGN_OR_RETURN(Graph settled, Settle(graph, {}));
  FoldBatchNorms(settled);
  return std::unique_ptr<Executor>(
      new GraphExecutor(std::move(settled), options, *dense));
}

}  // namespace millrace::models::graph
