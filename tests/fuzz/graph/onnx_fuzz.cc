// Arbitrary bytes as an ONNX model: imported, and run with small limits where
// that succeeds.
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/graph/onnx/importer.h"
#include "tests/fuzz/graph/run_both.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::models::graph;
  ImportReport report;
  auto graph = ImportOnnxBytes(
      std::as_bytes(std::span(data, size)), "", &report,
      {.max_nodes = 2000, .max_weight_bytes = 1 << 20, .min_late_bytes = 16});
  if (graph.ok()) RunBoth(*std::move(graph));
  return 0;
}
