// The encoder of images in a GGUF file of its own, as llama.cpp has it beside
// a language model: general.architecture "clip", keys clip.vision.*, tensors
// v.* and mm.*. Of the projector "idefics3" (SmolVLM's class).
// Source: github.com/ggml-org/llama.cpp, tools/mtmd/clip-impl.h and
// convert_hf_to_gguf.py.
#pragma once

#include "config/base/status.h"
#include "models/files/gguf.h"
#include "models/vision/vision_config.h"

namespace millrace::models::vision {

// Whether the file says that it is one, whatever its projector.
bool IsMmproj(const GgufFile& file);

// image_token is left 0: it is the language model's. INVALID_ARGUMENT or
// UNIMPLEMENTED names the key.
StatusOr<VisionConfig> ReadMmproj(const GgufFile& file);

}  // namespace millrace::models::vision
