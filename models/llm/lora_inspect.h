// What the files of a LoRA adapter say of themselves, without the model that
// they were made for. Tensors' values are not read.
//
//   if (IsLoraFile(path)) ASSIGN_OR_RETURN(auto told, DescribeLora(path));
//
// Texts are as the files hold them: foreign.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "config/base/status.h"

namespace millrace::models {

struct LoraDescription {
  // Matrices of one name, all layers together.
  struct Target {
    int64_t matrices = 0;
    int64_t least_rank = 0;
    int64_t greatest_rank = 0;
    int64_t parameters = 0;  // of both thin matrices
  };

  std::string format;  // "PEFT folder" or "GGUF"
  std::string base;    // the model it was made for; empty: not said
  std::string family;  // of that; empty: not said
  double alpha = 0;    // 0: not said
  bool root = false;   // alpha is divided by the root of the rank
  int64_t file_bytes = 0;
  // By the name that follows the layer's number: "self_attn.q_proj", "attn_q".
  std::map<std::string, Target> targets;
  // Why no model can be served with it; OK: one that it fits can.
  Status served;
};

// A folder with adapter_config.json and without config.json, or a GGUF file
// that calls itself an adapter.
bool IsLoraFile(const std::string& path);

// Errors name what is wrong with the files.
StatusOr<LoraDescription> DescribeLora(const std::string& path);

}  // namespace millrace::models
