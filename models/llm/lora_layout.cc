#include "models/llm/lora_layout.h"

namespace millrace::models {

const char* NameOf(LoraDtype dtype) {
  switch (dtype) {
    case LoraDtype::kF16:
      return "f16";
    case LoraDtype::kBF16:
      return "bf16";
    case LoraDtype::kF32:
      return "f32";
    case LoraDtype::kInt8:
      return "int8";
  }
  return "";
}

StatusOr<LoraDtype> LoraDtypeOf(const std::string& setting,
                                LoraDtype automatic) {
  if (setting == "auto") return automatic;
  if (setting == "f16" || setting == "float16") return LoraDtype::kF16;
  if (setting == "bf16" || setting == "bfloat16") return LoraDtype::kBF16;
  if (setting == "f32") return LoraDtype::kF32;
  if (setting == "int8") return LoraDtype::kInt8;
  return InvalidArgument("lora_dtype is '" + setting +
                         "'; auto, f16, bf16, f32 and int8 exist")
      .At("lora_dtype");
}

}  // namespace millrace::models
