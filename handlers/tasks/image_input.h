// From a part of a request to the one input of a graph of pictures.
//
//   ASSIGN_OR_RETURN(const ImageInput input, ImageInput::Create(parts));
//   ASSIGN_OR_RETURN(ImageRow row, input.Read(part));
//
// Immutable after Create.
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"
#include "handlers/make_task.h"
#include "handlers/task.h"
#include "models/image/decode.h"
#include "models/image/preprocess.h"
#include "models/tensor/tensor.h"

namespace millrace::handlers {

struct ImageRow {
  models::Tensor tensor;  // [1, …] as the graph takes it
  models::ImagePlacement placement = {};
};

class ImageInput {
 public:
  // What config.yaml leaves out follows from the graph's sizes.
  // INVALID_ARGUMENT says what does not fit.
  static StatusOr<ImageInput> Create(const TaskParts& parts);

  // The part's bytes are a file, or the base64 of one, as JSON carries it.
  StatusOr<ImageRow> Read(const TaskPart& part) const;

  const std::string& name() const { return name_; }
  const models::PreprocessOptions& options() const { return options_; }

 private:
  ImageInput() = default;

  std::string name_;  // of the graph's input
  bool as_bytes_ = false;
  models::DecodeOptions decoding_;
  models::PreprocessOptions options_;
};

}  // namespace millrace::handlers
