// The table. Qwen2 is a llama with biases on q, k and v and with pairs rotated
// half a head apart; GGUF files hold llama's q and k rows permuted for
// neighbouring pairs.
#include "models/llm/families.h"

namespace millrace::models {
namespace {

constexpr Family kFamilies[] = {
    {"llama", {.rope_interleaved = true, .qkv_bias = false}, &LlamaRecipe},
    {"qwen2", {.rope_interleaved = false, .qkv_bias = true}, &LlamaRecipe},
};

}  // namespace

const Family* FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

std::string FamilyNames() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.architecture;
  }
  return names;
}

}  // namespace millrace::models
