#include "models/graph/import.h"

#include <fstream>

namespace millrace::models::graph {
namespace {

// As .pt2 files are; ONNX has no magic of its own.
bool IsZip(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "PK\x03\x04";
}

}  // namespace

StatusOr<Graph> ImportGraph(const std::string& path, ImportReport* report,
                            const ImportLimits& limits) {
  if (!IsZip(path)) return ImportOnnx(path, report, limits);
  return Unimplemented(path +
                       " is a ZIP archive, as torch.export makes them, which "
                       "are not read yet; export the model to ONNX");
}

Status UnsupportedStatus(const ImportReport& report) {
  if (report.unsupported.empty()) return OkStatus();
  const UnsupportedNode& first = report.unsupported.front();
  std::string text = "operator " + first.op + " of node '" + first.node +
                     "' is not supported (" + first.why +
                     "; inputs: " + first.inputs + ")";
  if (const size_t more = report.unsupported.size() - 1; more > 0) {
    text += ", and " + std::to_string(more) +
            " more nodes; `millrace inspect` lists them all";
  }
  return Unimplemented(text);
}

}  // namespace millrace::models::graph
