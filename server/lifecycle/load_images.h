// The encoder of images that stands beside a language model in its folder, or
// in the GGUF file that `mmproj` names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "models/text/tokenizer.h"
#include "models/vision/image_encoder.h"

namespace millrace::server {

struct ChatImages {
  // Null: there is none, or the model runs where images are not taken (a
  // line of the log says so).
  std::shared_ptr<models::vision::ImageEncoder> encoder;
  int64_t most = 0;  // of a request
};

// `hidden`: numbers of a row of the language model.
StatusOr<ChatImages> LoadImages(const std::string& id,
                                const config::ModelSettings& settings,
                                const config::CpuSet& team,
                                const models::Tokenizer& tokenizer,
                                int32_t hidden);

// N of "image=N" or {"image": N}; INVALID_ARGUMENT at limit_mm_per_prompt.
StatusOr<int64_t> ReadImageLimit(const std::string& text);

}  // namespace millrace::server
