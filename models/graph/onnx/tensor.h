// A TensorProto as a tensor.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "config/base/status.h"
#include "models/memory/mapped_file.h"
#include "models/tensor/tensor.h"

namespace onnx {
class TensorProto;
}

namespace millrace::models::graph {

class ExternalFiles;

// Raw data that the proto has not because they were lifted out of it.
struct LateBytes {
  std::optional<std::span<const std::byte>> bytes;
  std::shared_ptr<const MappedFile> file;  // holds them; null: they are copied
};

// Takes the bytes out of `proto` where it can. `files` may be null: external
// data are refused then. UNIMPLEMENTED: of strings and other types we have not.
StatusOr<Tensor> TakeTensor(onnx::TensorProto* proto, ExternalFiles* files,
                            const LateBytes& late = {});

}  // namespace millrace::models::graph
