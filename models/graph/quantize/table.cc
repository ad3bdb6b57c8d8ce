#include "models/graph/quantize/table.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"

namespace millrace::models::graph {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "millrace-quantization";

Status Wrong(const std::string& what) {
  return InvalidArgument("the quantisation file " + what);
}

StatusOr<float> Number(const Json& layer, const char* key) {
  if (!layer.contains(key) || !layer[key].is_number()) {
    return Wrong(std::string("has a layer without the number '") + key + "'");
  }
  const double value = layer[key].get<double>();
  if (!(std::abs(value) < 1e30)) {
    return Wrong(std::string("has a layer whose '") + key + "' is no number");
  }
  return static_cast<float>(value);
}

StatusOr<QuantizedLayer> Layer(const Json& json) {
  if (!json.is_object() || !json.contains("name") ||
      !json["name"].is_string()) {
    return Wrong("has a layer without a name");
  }
  QuantizedLayer layer;
  layer.name = json["name"].get<std::string>();
  ASSIGN_OR_RETURN(layer.low, Number(json, "low"));
  ASSIGN_OR_RETURN(layer.high, Number(json, "high"));
  ASSIGN_OR_RETURN(const float error, Number(json, "error"));
  layer.error = error;
  if (layer.low > 0 || layer.high < 0) {
    return Wrong("has a layer '" + layer.name +
                 "' whose range does not hold 0; low must be at most 0 and "
                 "high at least 0");
  }
  const std::string precision =
      json.contains("precision") && json["precision"].is_string()
          ? json["precision"].get<std::string>()
          : "";
  if (precision != "int8" && precision != "f16" && precision != "f32") {
    return Wrong("has a layer '" + layer.name +
                 "' whose precision is neither int8 nor f16 nor f32");
  }
  layer.in_bytes = precision == "int8";
  layer.in_halves = precision == "f16";
  return layer;
}

}  // namespace

std::string_view PrecisionName(const QuantizedLayer& layer) {
  return layer.in_bytes ? "int8" : layer.in_halves ? "f16" : "f32";
}

std::string QuantizationJson(const QuantizationTable& table) {
  Json layers = Json::array();
  for (const QuantizedLayer& layer : table.layers) {
    layers.push_back({{"name", layer.name},
                      {"low", layer.low},
                      {"high", layer.high},
                      {"error", layer.error},
                      {"precision", PrecisionName(layer)}});
  }
  const Json json = {{"format", kFormat},
                     {"version", 1},
                     {"method", table.method},
                     {"layers", std::move(layers)}};
  return DumpJson(json) + "\n";
}

StatusOr<QuantizationTable> ReadQuantization(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (!json.is_object() || json.value("format", "") != kFormat) {
    return Wrong("is not one: its format must be '" + std::string(kFormat) +
                 "'");
  }
  if (!json.contains("version") || json["version"] != 1) {
    return Wrong("has another version than 1");
  }
  if (!json.contains("layers") || !json["layers"].is_array()) {
    return Wrong("has no list of layers");
  }
  QuantizationTable table;
  if (json.contains("method") && json["method"].is_string()) {
    table.method = json["method"].get<std::string>();
  }
  for (const Json& layer : json["layers"]) {
    ASSIGN_OR_RETURN(table.layers.emplace_back(), Layer(layer));
  }
  return table;
}

StatusOr<QuantizationTable> LoadQuantization(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return NotFound("'" + path +
                    "' cannot be read; write it with millrace quantize");
  }
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  return ReadQuantization(text);
}

}  // namespace millrace::models::graph
