#include "models/graph/onnx/importer.h"

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "models/graph/import.h"
#include "models/graph/onnx/functions.h"
#include "models/graph/onnx/graph_reader.h"
#include "models/graph/onnx/lifted.h"
#include "models/graph/onnx/text.h"
#include "models/graph/op.h"
#include "models/memory/mapped_file.h"

namespace millrace::models::graph {
namespace {

// What the upgrades know about.
constexpr int64_t kNewestOpset = 28;
// Of one protobuf message.
constexpr size_t kMaxBytes = (size_t{1} << 31) - 1;

// Operators count their operands when they run; whoever reads a graph before
// that may take for granted that what a node is about is there.
Status CheckFirstOperands(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if ((node.inputs.empty() || node.inputs[0] == kNoValue) &&
        !node.op->facts.stands_alone) {
      return InvalidArgument("node '" + node.name + "' (" +
                             std::string(node.op->name) +
                             ") lacks its first operand");
    }
    for (const auto& body : node.bodies) {
      RETURN_IF_ERROR(CheckFirstOperands(*body));
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<Graph> ImportOnnxBytes(std::span<const std::byte> bytes,
                                std::string folder, ImportReport* report,
                                const ImportLimits& limits,
                                std::shared_ptr<const MappedFile> file) {
  ImportReport own;
  if (report == nullptr) report = &own;
  if (bytes.size() > kMaxBytes) {
    return InvalidArgument(
        "the file has " + std::to_string(bytes.size()) +
        " bytes, but ONNX files have less than 2 GiB; store the weights as "
        "external data");
  }
  const LiftedModel lifted = LiftInitializers(bytes, limits.min_late_bytes);
  onnx::ModelProto model;
  if (!Parse(lifted, &model) || !model.has_graph()) {
    if (bytes.empty()) return InvalidArgument("the file is empty");
    return InvalidArgument("the " + std::to_string(bytes.size()) +
                           " bytes are no ONNX model: the file is truncated or "
                           "something else");
  }
  const Opsets opsets = OpsetsOf(model.opset_import());
  const auto opset = opsets.find("");
  const int64_t version = opset != opsets.end() ? opset->second : 1;
  report->format = "ONNX, opset " + std::to_string(version);
  report->producer = Cleaned(model.producer_name() +
                             (model.producer_version().empty() ? "" : " ") +
                             model.producer_version());
  if (version > kNewestOpset) {
    return Unimplemented("the model uses opset " + std::to_string(version) +
                         ", the newest known is " +
                         std::to_string(kNewestOpset) +
                         "; export it with an older one");
  }
  ASSIGN_OR_RETURN(FunctionTable functions, FunctionTable::Create(model));
  GraphReader reader(std::move(folder), std::move(functions), report, &limits,
                     &lifted, std::move(file));
  ASSIGN_OR_RETURN(Graph graph, reader.Read(&model));
  RETURN_IF_ERROR(UnsupportedStatus(*report));
  RETURN_IF_ERROR(CheckFirstOperands(graph));
  RETURN_IF_ERROR(graph.Validate());
  return graph;
}

StatusOr<Graph> ImportOnnx(const std::string& path, ImportReport* report,
                           const ImportLimits& limits) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  const auto file = std::make_shared<const MappedFile>(std::move(mapped));
  file->WillRead();
  const auto folder = std::filesystem::absolute(path).parent_path();
  return ImportOnnxBytes(file->bytes(), folder.string(), report, limits, file);
}

}  // namespace millrace::models::graph
