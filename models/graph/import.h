// From a file of foreign making to a graph. Nothing in it is trusted: sizes,
// offsets, names, order, shapes and depth are checked before use.
//
//   ImportReport report;
//   auto graph = ImportGraph("model.onnx", &report);
//   // When an operator is missing: graph is UNIMPLEMENTED and the report lists
//   // every one of them.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

struct ImportLimits {
  int64_t max_nodes = 1 << 20;
  // Beyond what the model's mapped files hold: what lies in a file may be
  // larger than memory.
  int64_t max_weight_bytes = int64_t{64} << 30;
  int64_t max_json_bytes = int64_t{256} << 20;
  int max_depth = 32;  // of graphs inside graphs
  // Smaller weights of ONNX files are parsed with the rest, larger ones stay in
  // the file until they are read.
  int64_t min_late_bytes = int64_t{64} << 10;
};

struct UnsupportedNode {
  std::string op;      // as the file calls it, with domain or overload
  std::string node;    // its name in the file
  std::string inputs;  // their names and, where known, types
  std::string why;     // "no such operator", "mode 'cubic' with antialias"
};

struct ImportReport {
  std::string format;    // "ONNX, opset 20" or "PyTorch export, schema 8.20"
  std::string producer;  // as the file says, cleaned
  std::vector<UnsupportedNode> unsupported;
};

// By what the file holds, not by its name. Weights may stay in the mapped file,
// which the graph's constants keep alive. `report` may be null.
StatusOr<Graph> ImportGraph(const std::string& path, ImportReport* report,
                            const ImportLimits& limits = {});

// Whether the file looks like one that ImportGraph reads.
StatusOr<bool> IsGraphFile(const std::string& path);

// One for each format, called by ImportGraph.
StatusOr<Graph> ImportOnnx(const std::string& path, ImportReport* report,
                           const ImportLimits& limits);
StatusOr<Graph> ImportPt2(const std::string& path, ImportReport* report,
                          const ImportLimits& limits);

// UNIMPLEMENTED that names the first of report.unsupported, its inputs, and how
// many more there are; OK when there is none.
Status UnsupportedStatus(const ImportReport& report);

}  // namespace millrace::models::graph
