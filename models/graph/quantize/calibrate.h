// Our own quantisation: watches the inputs of layers while a graph in FP32 runs
// on samples, chooses ranges, and tries each layer alone to see what it costs.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/graph/execution_context.h"
#include "models/graph/quantize/table.h"

namespace millrace::models::graph {

enum class RangeMethod {
  kMinMax,      // all that was seen
  kPercentile,  // all but a ten-thousandth at each end
  kMse          // where the squared error of rounding is least
};
// INVALID_ARGUMENT names those there are.
StatusOr<RangeMethod> RangeMethodOf(std::string_view name);

// How tables of embedding bags are stored.
enum class TablePrecision { kF32, kF16, kInt8 };
// INVALID_ARGUMENT names those there are.
StatusOr<TablePrecision> TablePrecisionOf(std::string_view name);

struct CalibrateOptions {
  RangeMethod method = RangeMethod::kMinMax;
  // Layers whose error alone is larger stay in FP32.
  double max_error = 1;
  TablePrecision tables = TablePrecision::kInt8;
  InstanceOptions instance;
  std::function<void(double done)> progress;  // may be empty
};

// `samples`: inputs in the order of the ports; one at least.
StatusOr<QuantizationTable> Calibrate(
    const Graph& graph, const std::vector<std::vector<Tensor>>& samples,
    const CalibrateOptions& options);

// What of the results changes by the table: see QuantizedLayer::error.
StatusOr<double> QuantizationError(
    const Graph& graph, const QuantizationTable& table,
    const std::vector<std::vector<Tensor>>& samples,
    const InstanceOptions& options);

}  // namespace millrace::models::graph
