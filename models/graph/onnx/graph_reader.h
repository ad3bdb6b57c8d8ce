// Walks the file's graph, its bodies and the functions it calls, and writes
// nodes of ours. A node that cannot be had does not end the walk: what it would
// make is taken as made, so that the report names all of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/graph/import.h"
#include "models/graph/onnx/attributes.h"
#include "models/graph/onnx/external.h"
#include "models/graph/onnx/functions.h"
#include "models/graph/onnx/lifted.h"
#include "models/graph/onnx/rewrite.h"
#include "models/graph/onnx/scope.h"
#include "models/graph/onnx/tensor.h"

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace onnx

namespace millrace::models::graph {

// One model, once. Reads the protos and takes the bytes out of initializers.
class GraphReader {
 public:
  // The model, the report, the limits and what was lifted live longer.
  // `file`, which may be null, holds what was lifted.
  GraphReader(std::string folder, FunctionTable functions, ImportReport* report,
              const ImportLimits* limits, const LiftedModel* lifted,
              std::shared_ptr<const MappedFile> file)
      : files_(std::move(folder)),
        functions_(std::move(functions)),
        report_(report),
        limits_(limits),
        lifted_(lifted),
        file_(std::move(file)) {}

  StatusOr<Graph> Read(onnx::ModelProto* model);

 private:
  using Ranks = std::unordered_map<std::string_view, int>;
  // Where a node stands.
  struct Place {
    Scope& scope;
    const Opsets& opsets;
    const AttributeScope& attributes;
    Ranks& ranks;  // as the file declares them
    int depth = 0;
    bool in_function = false;  // whose protos the next call reads again
  };
  struct Body {
    std::shared_ptr<Graph> graph;
    std::vector<Scope::Capture> captures;
  };
  using Values = std::vector<ValueId>;

  Status ReadPorts(onnx::GraphProto* proto, const Place& place);
  Status ReadNodes(onnx::GraphProto* proto, const Place& place);
  Status ReadOutputs(const onnx::GraphProto& proto, const Place& place);
  // Counts weights against their limit.
  Status Charge(int64_t bytes);
  Status ReadInitializer(onnx::TensorProto* tensor, LateBytes late,
                         const Place& place);
  Status ReadNode(const onnx::NodeProto& node, const Place& place);
  // The values that the node's outputs become.
  StatusOr<Values> Convert(const onnx::NodeProto& node, const Values& inputs,
                           const Place& place);
  StatusOr<Values> Call(const onnx::NodeProto& node, const Function& function,
                        const Values& inputs, const Place& place);
  // bodies.cc
  StatusOr<Values> ControlFlow(const onnx::NodeProto& node, Values inputs,
                               const Place& place);
  StatusOr<Body> ReadBody(const onnx::NodeProto& node, std::string_view attr,
                          const Place& place);

  void Report(const onnx::NodeProto& node, const Graph& graph,
              const Values& inputs, std::string_view why);

  ExternalFiles files_;
  FunctionTable functions_;
  ImportReport* report_;
  const ImportLimits* limits_;
  const LiftedModel* lifted_;
  std::shared_ptr<const MappedFile> file_;
  int64_t num_nodes_ = 0;
  int64_t weight_bytes_ = 0;
};

bool HasBodies(std::string_view op);

}  // namespace millrace::models::graph
