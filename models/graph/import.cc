#include "models/graph/import.h"

#include <cstddef>
#include <span>
#include <string_view>

#include "models/files/zip.h"
#include "models/graph/dim_names.h"
#include "models/graph/onnx/lifted.h"
#include "models/graph/passes/passes.h"
#include "models/memory/mapped_file.h"

namespace millrace::models::graph {
namespace {

enum class Format { kPt2, kOnnx, kNeither };

// An ONNX file is a bare protobuf message and has no magic: its fields tell.
Format FormatOf(const std::string& path, std::span<const std::byte> bytes) {
  if (ZipFile::LooksLikeZip(bytes)) return Format::kPt2;
  const bool onnx = path.ends_with(".onnx") || HasOnnxGraph(bytes);
  return onnx ? Format::kOnnx : Format::kNeither;
}

// As torch.save wrote them before it made archives.
bool IsPickle(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x80} &&
         bytes[1] == std::byte{2};
}

}  // namespace

StatusOr<bool> IsGraphFile(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return FormatOf(path, file.bytes()) != Format::kNeither;
}

StatusOr<Graph> ImportGraph(const std::string& path, ImportReport* report,
                            const ImportLimits& limits) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  StatusOr<Graph> graph = Internal("not imported");
  switch (FormatOf(path, file.bytes())) {
    case Format::kPt2:
      graph = ImportPt2(path, report, limits);
      break;
    case Format::kOnnx:
      graph = ImportOnnx(path, report, limits);
      break;
    case Format::kNeither:
      graph = IsPickle(file.bytes())
                  ? InvalidArgument(
                        "the file holds pickled weights, not an "
                        "exported program; use torch.export.save")
                  : InvalidArgument(
                        "the file is neither an ONNX model nor a "
                        "PyTorch export (.pt2)");
  }
  if (!graph.ok()) return graph.status().Prefixed("'" + path + "'");
  WidenHalves(*graph);
  NameOpenDims(*graph);
  return graph;
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
