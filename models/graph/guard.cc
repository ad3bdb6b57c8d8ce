#include "models/graph/guard.h"

#include <algorithm>
#include <utility>

#include "models/graph/passes/passes.h"
#include "models/graph/settle.h"

namespace millrace::models::graph {
namespace {

struct Layer {
  std::string name;
  double error = 0;  // when it is reduced alone
};

class Guard {
 public:
  Guard(const Graph& graph, const ExecutorOptions& options,
        const TensorSets& samples)
      : graph_(graph), options_(options), samples_(samples) {}

  StatusOr<Guarded> Run(double max_error) {
    RETURN_IF_ERROR(ListLayers());
    ASSIGN_OR_RETURN(want_, InF32());
    ASSIGN_OR_RETURN(Guarded best, With(0));
    const double asked = best.report.error;
    if (asked > max_error) {
      best.executor = nullptr;  // its memory
      RETURN_IF_ERROR(Rank());
      // Fewer layers in f32 than `low` are too few, `high` are enough.
      size_t low = 0;
      size_t high = layers_.size();
      while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        ASSIGN_OR_RETURN(const Guarded tried, With(middle));
        (tried.report.error > max_error ? low : high) = middle;
      }
      ASSIGN_OR_RETURN(best, With(high));
    }
    best.report.asked_error = asked;
    return best;
  }

 private:
  Status ListLayers() {
    if (options_.quantization != nullptr) {
      for (const QuantizedLayer& layer : options_.quantization->layers) {
        if (layer.in_bytes) layers_.push_back({layer.name, layer.error});
      }
      return OkStatus();
    }
    ASSIGN_OR_RETURN(Graph settled, Settle(graph_, {}));
    FoldBatchNorms(settled);
    for (const std::string& name : RoundableLayers(settled)) {
      const auto& f32 = options_.f32_layers;
      if (std::find(f32.begin(), f32.end(), name) != f32.end()) continue;
      layers_.push_back({name});
    }
    return OkStatus();
  }

  // The costliest first.
  Status Rank() {
    if (options_.quantization == nullptr) {
      for (size_t i = 0; i < layers_.size(); ++i) {
        std::swap(layers_[i], layers_.back());
        ASSIGN_OR_RETURN(const Guarded alone, With(layers_.size() - 1));
        layers_.back().error = alone.report.error;
        std::swap(layers_[i], layers_.back());
      }
    }
    std::stable_sort(
        layers_.begin(), layers_.end(),
        [](const Layer& a, const Layer& b) { return a.error > b.error; });
    return OkStatus();
  }

  StatusOr<TensorSets> InF32() const {
    ExecutorOptions options = options_;
    options.precision = Precision::kF32;
    options.f32_layers = {};
    options.quantization = nullptr;
    ASSIGN_OR_RETURN(const auto executor,
                     Executor::Create(graph_.Copy(), options));
    return RunAll(*executor, samples_);
  }

  // With the first `count` layers in f32.
  StatusOr<Guarded> With(size_t count) const {
    Guarded guarded;
    guarded.report.layers = static_cast<int64_t>(layers_.size());
    std::vector<std::string>& f32 = guarded.report.f32_layers;
    for (size_t i = 0; i < count; ++i) f32.push_back(layers_[i].name);
    ExecutorOptions options = options_;
    if (options.quantization != nullptr) {
      auto table = std::make_shared<QuantizationTable>(*options.quantization);
      for (QuantizedLayer& layer : table->layers) {
        if (std::find(f32.begin(), f32.end(), layer.name) != f32.end()) {
          layer.in_bytes = false;
        }
      }
      options.quantization = std::move(table);
    } else {
      options.f32_layers.insert(options.f32_layers.end(), f32.begin(),
                                f32.end());
    }
    ASSIGN_OR_RETURN(guarded.executor,
                     Executor::Create(graph_.Copy(), options));
    ASSIGN_OR_RETURN(const TensorSets got, RunAll(*guarded.executor, samples_));
    guarded.report.error = ErrorOf(got, want_);
    return guarded;
  }

  const Graph& graph_;
  const ExecutorOptions& options_;
  const TensorSets& samples_;
  TensorSets want_;
  std::vector<Layer> layers_;
};

}  // namespace

StatusOr<Guarded> CreateGuarded(const Graph& graph,
                                const ExecutorOptions& options,
                                const TensorSets& samples, double max_error) {
  if (samples.empty()) return InvalidArgument("the guard needs a sample");
  return Guard(graph, options, samples).Run(max_error);
}

}  // namespace millrace::models::graph
