// Folders that hold all experts of a layer in one tensor of their own order, as
// gpt-oss and Llama 4 do. It becomes the tensors that GGUF files have: gates
// and ups apart, rows of inputs, MXFP4 in blocks.
//
//   mlp.experts.gate_up_proj          [experts][hidden][2 ffn], gate and up of
//                                     an output side by side; floats, or
//   mlp.experts.gate_up_proj_blocks   [experts][2 ffn][hidden / 32][16] bytes,
//                                     values 2 i and 2 i + 1 in byte i
//   mlp.experts.gate_up_proj_scales   [experts][2 ffn][hidden / 32] bytes
//   mlp.experts.gate_up_proj_bias     [experts][2 ffn]
//   mlp.experts.down_proj…            the same of [ffn] and [hidden]
//
// Llama 4's are floats without biases under feed_forward.experts, all gates
// before all ups.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/files/file_tensor.h"
#include "models/files/safetensors.h"

namespace millrace::models {

bool HasExpertBlocks(std::string_view architecture);

class HfExperts {
 public:
  explicit HfExperts(std::string_view architecture);

  // True: the tensor that a plain folder calls so is one of these and is kept
  // for Finish. It must outlive what Finish makes, which has its name.
  bool Take(std::string_view name, const SafetensorsTensor& tensor);
  // Calls `add` with the name in GGUF files of each tensor made; their bytes
  // live in `memory`. Errors name the folder's tensor.
  using Memory = std::deque<std::vector<std::byte>>;
  template <typename Add>
  Status Finish(Memory& memory, Add add) const {
    ASSIGN_OR_RETURN(const auto made, Make(memory));
    for (const auto& [name, tensor] : made) add(name, tensor);
    return OkStatus();
  }

 private:
  using Made = std::vector<std::pair<std::string, FileTensor>>;
  StatusOr<Made> Make(Memory& memory) const;

  const std::string_view part_;  // of the tensors' names
  const bool alternate_;         // gates and ups
  std::map<std::string, const SafetensorsTensor*> tensors_;
};

}  // namespace millrace::models
