#include <filesystem>

#include "models/files/mapped_file.h"
#include "models/graph/import.h"
#include "models/graph/onnx/importer.h"

namespace millrace::models::graph {

StatusOr<Graph> ImportOnnx(const std::string& path, ImportReport* report,
                           const ImportLimits& limits) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  file.WillRead();
  const auto folder = std::filesystem::absolute(path).parent_path();
  return ImportOnnxBytes(file.bytes(), folder.string(), report, limits);
}

}  // namespace millrace::models::graph
