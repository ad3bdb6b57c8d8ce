// The tiny folder of the Idefics3 class and what transformers makes of its
// images (tests/data/make_tiny_vision.py).
#pragma once

#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/image/image.h"
#include "models/llm/prompt_embeddings.h"
#include "models/tensor/tensor.h"
#include "models/vision/image_encoder.h"

namespace millrace::models::vision {

inline constexpr char kTinyVision[] = "tests/data/hf_idefics3";

struct TinyVision {
  nlohmann::json golden;                 // golden.json
  std::map<std::string, Tensor> arrays;  // golden.npz
};
// Read once.
const TinyVision& Tiny();

std::string FileOf(const std::string& image);
RgbImage Decoded(const std::string& image);
VisionConfig TinyConfig(bool splits);

// A copy of the folder whose images are not split.
std::string WholeFolder();

StatusOr<EncodedImages> EncodeNow(ImageEncoder& encoder,
                                  const std::vector<std::string>& bytes,
                                  EncodeWait wait = {});
// Of a case of golden.json.
EncodedImages EncodeCase(ImageEncoder& encoder, const nlohmann::json& row);
std::shared_ptr<const PromptEmbeddings> EmbeddingsOf(
    const VisionConfig& config, const EncodedImages& images,
    const std::vector<int32_t>& ids);

}  // namespace millrace::models::vision
