// Weights that stand in files beside the model ("external data" of the ONNX
// specification), mapped once each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/memory/mapped_file.h"

namespace onnx {
class TensorProto;
}

namespace millrace::models::graph {

class ExternalFiles {
 public:
  // The folder of the model; empty: there are no such files.
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}

  struct Piece {
    std::span<const std::byte> bytes;
    std::shared_ptr<const MappedFile> file;  // holds the bytes
  };
  // The tensor's `num_bytes` bytes, wherever its fields say. INVALID_ARGUMENT:
  // outside of the folder, of the file, or of another length.
  StatusOr<Piece> Find(const onnx::TensorProto& tensor, int64_t num_bytes);
  // Of all files that were found.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  StatusOr<std::shared_ptr<const MappedFile>> Map(std::string_view location);

  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>, std::less<>> files_;
  int64_t num_bytes_ = 0;
};

}  // namespace millrace::models::graph
