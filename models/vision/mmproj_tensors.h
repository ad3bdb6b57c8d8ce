// The tensors of an mmproj file (mmproj.h) under the names of a folder.
#pragma once

#include <memory>

#include "models/encoder/encoder_tensors.h"
#include "models/files/gguf.h"

namespace millrace::models::vision {

std::unique_ptr<const encoder::EncoderTensors> MmprojTensors(
    std::shared_ptr<const GgufFile> file);

}  // namespace millrace::models::vision
