#include "models/graph/execution_context.h"

#include <memory>
#include <utility>

#include "config/base/out_of_memory.h"
#include "models/graph/interpreter.h"
#include "models/graph/ports.h"
#include "models/memory/huge_buffer.h"
#include "models/memory/truncation_guard.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

class GraphContext final : public ExecutionContext {
 public:
  GraphContext(std::shared_ptr<CompiledGraph> graph,
               const ContextOptions& options)
      : graph_(std::move(graph)),
        cover_(TruncationGuard::Cover()),
        max_bytes_(options.max_bytes),
        pool_(options.cpus, "graph") {}

  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                    const RunOptions& run) override {
    RETURN_IF_ERROR(CheckInputs(graph_->inputs(), graph_->symbols(), inputs));
    RETURN_IF_ERROR(CheckFiles());
    StatusOr<std::vector<Tensor>> outputs =
        CatchOutOfMemory([&] { return ComputeOwn(inputs, run); });
    // First: what else went wrong may follow from that.
    RETURN_IF_ERROR(CheckFiles());
    return outputs;
  }

  bool RunIfTiny(const std::vector<Tensor>& inputs,
                 StatusOr<std::vector<Tensor>>* outputs) override {
    auto plan = graph_->TinyPlanFor(inputs, pool_);
    if (plan == nullptr || !CheckFiles().ok() || !CheckBytes(*plan).ok() ||
        !HaveArena(plan->arena_bytes()).ok()) {
      return false;
    }
    last_ = std::move(plan);
    *outputs = CatchOutOfMemory([&] {
      return last_->whole->Run(inputs, arena_.data(), bindings_[0], pool_,
                               nullptr, nullptr);
    });
    if (Status status = CheckFiles(); !status.ok()) *outputs = status;
    return true;
  }

  StatusOr<TeamRoofline> MeasureRoofline() override {
    return graph::MeasureRoofline(pool_, graph_->kernels(),
                                  graph_->constant_bytes());
  }

  const std::shared_ptr<CompiledGraph>& compiled_graph() const override {
    return graph_;
  }
  const std::vector<Port>& inputs() const override { return graph_->inputs(); }
  const std::vector<Port>& outputs() const override {
    return graph_->outputs();
  }
  const std::vector<Symbol>& symbols() const override {
    return graph_->symbols();
  }
  const BatchAxis& batch_axis() const override { return graph_->batch_axis(); }
  std::string PlanText() const override {
    return last_ == nullptr ? "" : last_->Text();
  }
  DeviceCounts device_counts() const override {
    return last_ == nullptr || last_->device == nullptr
               ? DeviceCounts()
               : last_->device->counts();
  }
  int64_t ArenaBytes() const override {
    return last_ == nullptr ? 0 : last_->arena_bytes();
  }

 private:
  // DATA_LOSS when a file of constants was cut short: what was computed of it
  // is worthless, and so is what follows.
  Status CheckFiles() const {
    return cover_ == nullptr ? OkStatus() : cover_->Check();
  }

  // Strings show characters of inputs and constants until here.
  StatusOr<std::vector<Tensor>> ComputeOwn(const std::vector<Tensor>& inputs,
                                           const RunOptions& run) {
    ASSIGN_OR_RETURN(std::vector<Tensor> outputs, Compute(inputs, run));
    for (Tensor& output : outputs) {
      if (output.dtype() == kString) output = output.Copy();
    }
    return outputs;
  }

  StatusOr<std::vector<Tensor>> Compute(const std::vector<Tensor>& inputs,
                                        const RunOptions& run) {
    last_ = nullptr;
    // Plans for one thread do not call the team, which pins its caller.
    if (!std::exchange(is_pinned_, true)) pool_.Run([](Worker&) {});
    ASSIGN_OR_RETURN(last_,
                     graph_->PlanFor(inputs, run.trace != nullptr, pool_));
    if (last_ == nullptr) {
      return Interpret(graph_->graph(), inputs, {.stopped = run.stopped});
    }
    RETURN_IF_ERROR(CheckBytes(*last_));
    RETURN_IF_ERROR(HaveArena(last_->arena_bytes()));
    if (last_->device != nullptr) {
      if (state_ == nullptr) {
        ASSIGN_OR_RETURN(state_, graph_->device()->NewState());
      }
      return last_->device->Run(inputs, arena_.data(), *state_, pool_,
                                run.stopped, run.trace);
    }
    if (last_->cut != nullptr) {
      return last_->cut->Run(inputs, arena_.data(), bindings_, pool_,
                             run.stopped);
    }
    if (last_->rows != nullptr) {
      return last_->rows->Run(inputs, last_->batch, arena_.data(), bindings_,
                              pool_, run.stopped);
    }
    return last_->whole->Run(inputs, arena_.data(), bindings_[0], pool_,
                             run.stopped, run.trace);
  }

  Status CheckBytes(const Prepared& prepared) const {
    if (max_bytes_ == 0) return OkStatus();
    const int64_t arena = prepared.arena_bytes();
    const double results = prepared.ResultBytes();
    if (static_cast<double>(arena) + results <=
        static_cast<double>(max_bytes_)) {
      return OkStatus();
    }
    return ResourceExhausted(
        "inputs of these sizes need " + std::to_string(arena >> 20) +
        " MiB between layers and " +
        std::to_string(static_cast<int64_t>(results / (1 << 20))) +
        " MiB for results; the limit is " + std::to_string(max_bytes_ >> 20) +
        " MiB, half of the memory limit: send fewer rows or smaller ones");
  }

  Status HaveArena(int64_t bytes) {
    if (arena_.size() >= bytes && arena_.data() != nullptr) return OkStatus();
    ASSIGN_OR_RETURN(arena_, HugeBuffer::Allocate(bytes, true, "graph values"));
    return OkStatus();
  }

  // Shared with other contexts of the graph; outlives last_.
  const std::shared_ptr<CompiledGraph> graph_;
  // Of the guard that this was made under, shared with the graph's load; null:
  // of none.
  const std::shared_ptr<const FileCover> cover_;
  const int64_t max_bytes_;
  ComputePool pool_;
  bool is_pinned_ = false;
  HugeBuffer arena_;
  std::vector<Bindings> bindings_{1};
  std::unique_ptr<DeviceState> state_;  // made by the first run on a device
  // What the last Run used; null: it was interpreted.
  std::shared_ptr<const Prepared> last_;
};

}  // namespace

std::unique_ptr<ExecutionContext> ExecutionContext::Create(
    std::shared_ptr<CompiledGraph> graph, const ContextOptions& options) {
  return std::make_unique<GraphContext>(std::move(graph), options);
}

StatusOr<std::unique_ptr<ExecutionContext>> CreateInstance(
    Graph graph, const InstanceOptions& options) {
  CompileOptions compile = options;
  compile.weight_cpus = options.cpus;
  ASSIGN_OR_RETURN(auto compiled,
                   CompiledGraph::Create(std::move(graph), compile));
  return ExecutionContext::Create(std::move(compiled), options);
}

}  // namespace millrace::models::graph
