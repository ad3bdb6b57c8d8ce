// A TensorProto as a tensor.
#pragma once

#include "config/base/status.h"
#include "models/tensor/tensor.h"

namespace onnx {
class TensorProto;
}

namespace millrace::models::graph {

class ExternalFiles;

// Takes the bytes out of `proto` where it can. `files` may be null: external
// data are refused then. UNIMPLEMENTED: of strings and other types we have not.
StatusOr<Tensor> TakeTensor(onnx::TensorProto* proto, ExternalFiles* files);

}  // namespace millrace::models::graph
