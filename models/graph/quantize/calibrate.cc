#include "models/graph/quantize/calibrate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "models/graph/infer_and_fold.h"
#include "models/graph/passes/passes.h"
#include "models/graph/quantize/compare.h"
#include "models/graph/quantize/insert.h"

namespace millrace::models::graph {
namespace {

constexpr size_t kBins = 2048;

// What was seen of one value, in two passes: its limits, then how often each
// part between them.
class Seen {
 public:
  void Limits(const Tensor& x) {
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      const float v = x.data<float>()[i];
      if (!std::isfinite(v)) continue;
      low_ = std::min(low_, v);
      high_ = std::max(high_, v);
    }
  }
  void Count(const Tensor& x) {
    const float by = static_cast<float>(kBins) / std::max(high_ - low_, 1e-20f);
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      const float v = x.data<float>()[i];
      if (!std::isfinite(v)) continue;
      const auto bin = static_cast<size_t>((v - low_) * by);
      ++bins_[std::min(bin, kBins - 1)];
    }
  }

  std::pair<float, float> Range(RangeMethod method) const {
    if (method == RangeMethod::kPercentile) return Percentile();
    if (method == RangeMethod::kMse) return LeastError();
    return {low_, high_};
  }

 private:
  float Edge(size_t bin) const {
    return low_ + (high_ - low_) * static_cast<float>(bin) / float{kBins};
  }

  std::pair<float, float> Percentile() const {
    double all = 0;
    for (const int64_t count : bins_) all += static_cast<double>(count);
    const double least = all * 1e-4;
    size_t first = 0;
    size_t last = kBins;
    double below = static_cast<double>(bins_[0]);
    while (first + 1 < kBins && below < least) {
      below += static_cast<double>(bins_[++first]);
    }
    double above = static_cast<double>(bins_[kBins - 1]);
    while (last - 1 > first + 1 && above < least) {
      above += static_cast<double>(bins_[--last - 1]);
    }
    return {std::min(0.0f, Edge(first)), std::max(0.0f, Edge(last))};
  }

  // Both ends drawn in by the same part.
  std::pair<float, float> LeastError() const {
    std::pair<float, float> best{low_, high_};
    double least = std::numeric_limits<double>::infinity();
    for (int part = 100; part >= 40; --part) {
      const double low = low_ * part / 100.0;
      const double high = high_ * part / 100.0;
      const double scale = std::max((high - low) / 255, 1e-20);
      double error = 0;
      for (size_t bin = 0; bin < kBins; ++bin) {
        if (bins_[bin] == 0) continue;
        const double v = (double{Edge(bin)} + Edge(bin + 1)) / 2;
        const double q =
            std::clamp(std::nearbyint((v - low) / scale), 0.0, 255.0);
        const double off = low + q * scale - v;
        error += off * off * static_cast<double>(bins_[bin]);
      }
      if (error >= least) continue;
      least = error;
      best = {static_cast<float>(low), static_cast<float>(high)};
    }
    return best;
  }

  float low_ = 0;
  float high_ = 0;
  std::vector<int64_t> bins_ = std::vector<int64_t>(kBins);
};

// As a compiled graph starts out.
StatusOr<Graph> Loaded(const Graph& graph) {
  ASSIGN_OR_RETURN(Graph folded, InferAndFold(graph, {}));
  FoldBatchNorms(folded);
  return folded;
}

StatusOr<TensorSets> RunWith(const Graph& graph, const QuantizationTable* table,
                             const TensorSets& samples,
                             InstanceOptions options) {
  options.quantization = nullptr;
  if (table != nullptr) {
    options.quantization = std::make_shared<const QuantizationTable>(*table);
  }
  ASSIGN_OR_RETURN(auto context, CreateInstance(graph.Copy(), options));
  return RunAll(*context, samples);
}

// The limits of all values on a graph whose layers' inputs are results, too.
StatusOr<std::map<ValueId, Seen>> Watch(
    const Graph& loaded, const std::vector<QuantizableLayer>& layers,
    const TensorSets& samples, const CalibrateOptions& options) {
  Graph watched = loaded.Copy();
  const size_t first = watched.outputs.size();
  std::vector<ValueId> values;
  for (const QuantizableLayer& layer : layers) {
    if (layer.is_table) continue;
    const ValueId id = loaded.nodes[layer.node].inputs[0];
    if (std::find(values.begin(), values.end(), id) != values.end()) continue;
    watched.AddOutput("watched " + std::to_string(values.size()), id);
    values.push_back(id);
  }
  InstanceOptions plain = options.instance;
  plain.quantization = nullptr;
  ASSIGN_OR_RETURN(auto context, CreateInstance(std::move(watched), plain));
  std::map<ValueId, Seen> seen;
  for (const bool counts : {false, true}) {
    for (const auto& sample : samples) {
      ASSIGN_OR_RETURN(const std::vector<Tensor> results, context->Run(sample));
      for (size_t i = 0; i < values.size(); ++i) {
        const Tensor& x = results[first + i];
        if (x.dtype() != DType::kF32) continue;
        if (counts) {
          seen[values[i]].Count(x);
        } else {
          seen[values[i]].Limits(x);
        }
      }
    }
    if (options.method == RangeMethod::kMinMax) break;
  }
  return seen;
}

}  // namespace

StatusOr<RangeMethod> RangeMethodOf(std::string_view name) {
  if (name == "minmax") return RangeMethod::kMinMax;
  if (name == "percentile") return RangeMethod::kPercentile;
  if (name == "mse") return RangeMethod::kMse;
  return InvalidArgument("the method is '" + std::string(name) +
                         "' but must be minmax, percentile or mse");
}

StatusOr<TablePrecision> TablePrecisionOf(std::string_view name) {
  if (name == "f32") return TablePrecision::kF32;
  if (name == "f16") return TablePrecision::kF16;
  if (name == "int8") return TablePrecision::kInt8;
  return InvalidArgument("the tables' type is '" + std::string(name) +
                         "' but must be f32, f16 or int8");
}

StatusOr<QuantizationTable> Calibrate(const Graph& graph,
                                      const TensorSets& samples,
                                      const CalibrateOptions& options) {
  if (samples.empty()) return InvalidArgument("calibration needs a sample");
  ASSIGN_OR_RETURN(const Graph loaded, Loaded(graph));
  const std::vector<QuantizableLayer> layers = QuantizableLayers(loaded);
  ASSIGN_OR_RETURN(const auto seen, Watch(loaded, layers, samples, options));
  QuantizationTable table;
  for (const QuantizableLayer& layer : layers) {
    if (layer.is_table) {
      if (options.tables == TablePrecision::kF32) continue;
      const bool in_bytes = options.tables == TablePrecision::kInt8;
      table.layers.push_back({layer.name, 0, 0, 0, in_bytes, !in_bytes});
      continue;
    }
    const auto found = seen.find(loaded.nodes[layer.node].inputs[0]);
    if (found == seen.end()) continue;
    const auto [low, high] = found->second.Range(options.method);
    table.layers.push_back({layer.name, low, high, 0, true});
  }
  // One sample says well enough what a layer costs.
  TensorSets one;
  for (const Tensor& input : samples[0]) {
    if (one.empty()) one.emplace_back();
    one[0].push_back(input.Share());
  }
  if (one.empty()) one.emplace_back();
  ASSIGN_OR_RETURN(const TensorSets want,
                   RunWith(graph, nullptr, one, options.instance));
  for (size_t i = 0; i < table.layers.size(); ++i) {
    QuantizedLayer& layer = table.layers[i];
    const QuantizationTable alone{table.method, {layer}};
    ASSIGN_OR_RETURN(const TensorSets got,
                     RunWith(graph, &alone, one, options.instance));
    layer.error = ErrorOf(got, want);
    const bool fits = layer.error <= options.max_error;
    layer.in_bytes = layer.in_bytes && fits;
    layer.in_halves = layer.in_halves && fits;
    if (options.progress) {
      options.progress(static_cast<double>(i + 1) /
                       static_cast<double>(table.layers.size()));
    }
  }
  return table;
}

StatusOr<double> QuantizationError(const Graph& graph,
                                   const QuantizationTable& table,
                                   const TensorSets& samples,
                                   const InstanceOptions& options) {
  ASSIGN_OR_RETURN(const TensorSets want,
                   RunWith(graph, nullptr, samples, options));
  ASSIGN_OR_RETURN(const TensorSets got,
                   RunWith(graph, &table, samples, options));
  return ErrorOf(got, want);
}

}  // namespace millrace::models::graph
