#include "models/graph/guard.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "models/graph/infer_and_fold.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

struct Layer {
  std::string name;
  double error = 0;  // when it is reduced alone
};

class Guard {
 public:
  Guard(const Graph& graph, const InstanceOptions& options,
        const TensorSets& samples, const Stopwatch& stopwatch,
        const DeviceOpener& opener)
      : graph_(graph),
        options_(options),
        samples_(samples),
        stopwatch_(stopwatch),
        opener_(opener) {}

  StatusOr<Guarded> Run(double max_error) {
    RETURN_IF_ERROR(ListLayers());
    RETURN_IF_ERROR(RunInF32());
    ASSIGN_OR_RETURN(Guarded best, With(0));
    const double asked = best.report.error;
    if (asked > max_error) {
      best.context = nullptr;  // their memory
      best.graph = nullptr;
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
    if (TimesIt()) RETURN_IF_ERROR(DropIfSlow(best));
    return best;
  }

 private:
  Status ListLayers() {
    if (options_.quantization != nullptr) {
      for (const QuantizedLayer& layer : options_.quantization->layers) {
        if (!layer.in_bytes && !layer.in_halves) continue;
        layers_.push_back({layer.name, layer.error});
      }
      return OkStatus();
    }
    ASSIGN_OR_RETURN(Graph folded, InferAndFold(graph_, {}));
    FoldBatchNorms(folded);
    for (const std::string& name : RoundableLayers(folded)) {
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

  // Compiles the graph and gives it a context.
  Status Create(InstanceOptions options, bool in_f32, Guarded& guarded) const {
    if (opener_) {
      ASSIGN_OR_RETURN(options.device, opener_(in_f32));
    }
    CompileOptions compile = options;
    compile.weight_cpus = options.cpus;
    ASSIGN_OR_RETURN(guarded.graph,
                     CompiledGraph::Create(graph_.Copy(), compile));
    guarded.context = ExecutionContext::Create(guarded.graph, options);
    guarded.options = std::move(options);
    return OkStatus();
  }
  Status CreateInF32(Guarded& guarded) const {
    InstanceOptions options = options_;
    options.precision = Precision::kF32;
    options.f32_layers = {};
    options.quantization = nullptr;
    return Create(std::move(options), true, guarded);
  }
  Status RunInF32() {
    Guarded f32;
    RETURN_IF_ERROR(CreateInF32(f32));
    ASSIGN_OR_RETURN(want_, RunAll(*f32.context, samples_));
    if (TimesIt()) {
      ASSIGN_OR_RETURN(f32_ms_, stopwatch_(*f32.context, samples_));
    }
    return OkStatus();
  }

  // Bytes may be asked for to save memory; bf16 has no other use than speed.
  bool TimesIt() const {
    return options_.quantization == nullptr &&
           options_.precision == Precision::kBf16;
  }
  Status DropIfSlow(Guarded& best) const {
    PrecisionReport& report = best.report;
    report.f32_ms = f32_ms_;
    ASSIGN_OR_RETURN(report.reduced_ms, stopwatch_(*best.context, samples_));
    if (report.reduced_ms <= report.f32_ms) return OkStatus();
    report.too_slow = true;
    report.error = 0;
    report.f32_layers.clear();
    for (const Layer& layer : layers_) report.f32_layers.push_back(layer.name);
    best.context = nullptr;  // their memory
    best.graph = nullptr;
    RETURN_IF_ERROR(CreateInF32(best));
    // As promised; the first request then pays for no plan.
    return RunAll(*best.context, samples_).status();
  }

  // With the first `count` layers in f32.
  StatusOr<Guarded> With(size_t count) const {
    Guarded guarded;
    guarded.report.layers = static_cast<int64_t>(layers_.size());
    std::vector<std::string>& f32 = guarded.report.f32_layers;
    for (size_t i = 0; i < count; ++i) f32.push_back(layers_[i].name);
    InstanceOptions options = options_;
    if (options.quantization != nullptr) {
      auto table = std::make_shared<QuantizationTable>(*options.quantization);
      for (QuantizedLayer& layer : table->layers) {
        if (std::find(f32.begin(), f32.end(), layer.name) != f32.end()) {
          layer.in_bytes = false;
          layer.in_halves = false;
        }
      }
      options.quantization = std::move(table);
    } else {
      options.f32_layers.insert(options.f32_layers.end(), f32.begin(),
                                f32.end());
    }
    RETURN_IF_ERROR(Create(std::move(options), false, guarded));
    ASSIGN_OR_RETURN(const TensorSets got, RunAll(*guarded.context, samples_));
    guarded.report.error = ErrorOf(got, want_);
    return guarded;
  }

  const Graph& graph_;
  const InstanceOptions& options_;
  const TensorSets& samples_;
  const Stopwatch& stopwatch_;
  const DeviceOpener& opener_;
  TensorSets want_;
  double f32_ms_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace

StatusOr<double> LeastMs(ExecutionContext& context, const TensorSets& samples) {
  using Clock = std::chrono::steady_clock;
  constexpr int kLeastRuns = 3;
  constexpr int kMostRuns = 50;
  constexpr std::chrono::milliseconds kEnough(200);
  double least = std::numeric_limits<double>::infinity();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kMostRuns; ++i) {
    if (i >= kLeastRuns && Clock::now() - start > kEnough) break;
    const Clock::time_point before = Clock::now();
    RETURN_IF_ERROR(RunAll(context, samples).status());
    const std::chrono::duration<double, std::milli> took =
        Clock::now() - before;
    least = std::min(least, took.count());
  }
  return least;
}

StatusOr<Guarded> CreateGuarded(const Graph& graph,
                                const InstanceOptions& options,
                                const TensorSets& samples, double max_error,
                                const Stopwatch& stopwatch,
                                const DeviceOpener& opener) {
  if (samples.empty()) return InvalidArgument("the guard needs a sample");
  return Guard(graph, options, samples, stopwatch, opener).Run(max_error);
}

}  // namespace millrace::models::graph
