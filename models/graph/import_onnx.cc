#include <filesystem>
#include <memory>
#include <utility>

#include "models/graph/import.h"
#include "models/graph/onnx/importer.h"
#include "models/memory/mapped_file.h"

namespace millrace::models::graph {

StatusOr<Graph> ImportOnnx(const std::string& path, ImportReport* report,
                           const ImportLimits& limits) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  const auto file = std::make_shared<const MappedFile>(std::move(mapped));
  file->WillRead();
  const auto folder = std::filesystem::absolute(path).parent_path();
  return ImportOnnxBytes(file->bytes(), folder.string(), report, limits, file);
}

}  // namespace millrace::models::graph
