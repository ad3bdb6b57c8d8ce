// What our own quantisation decides about a graph: the range of each layer's
// input, and which layers stay in FP32. A side file beside the model holds it
// in JSON, to be read and edited:
//
//   {"format": "millrace-quantization", "version": 1, "method": "minmax",
//    "layers": [{"name": "conv1", "low": -2.1, "high": 2.6,
//                "error": 0.004, "precision": "int8"}, …]}
//
// Weights are not in it: they are rounded at load, one scale for each output. A
// table of embedding bags is a layer, too: its rows have a scale and a bias
// each and its input has no range; precision may be "f16".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::models::graph {

struct QuantizedLayer {
  std::string name;  // the node's; "#2" behind it where an earlier one has it
  float low = 0;     // of the input; 0 lies within
  float high = 0;
  // What of the graph's results changes when this layer alone is quantised:
  // |difference| / |result|, root mean squares, the worst result.
  double error = 0;
  bool in_bytes = true;
  // A table of embedding bags in FP16 instead of bytes; other layers cannot.
  bool in_halves = false;
};

struct QuantizationTable {
  std::string method;
  std::vector<QuantizedLayer> layers;
};

// "int8", "f16" or "f32".
std::string_view PrecisionName(const QuantizedLayer& layer);

std::string QuantizationJson(const QuantizationTable& table);
// INVALID_ARGUMENT says what of the file is wrong.
StatusOr<QuantizationTable> ReadQuantization(std::string_view json);
// Of a file; NOT_FOUND says how to make it.
StatusOr<QuantizationTable> LoadQuantization(const std::string& path);

}  // namespace millrace::models::graph
