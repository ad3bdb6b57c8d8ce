// What stands beside weights, from outside: config.json of a language model or
// an encoder, adapter_config.json, or an adapter in GGUF, by the first byte.
// Each is read or refused.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/base/json.h"
#include "models/encoder/encoder_config.h"
#include "models/llm/hf_config.h"
#include "models/llm/lora.h"
#include "models/llm/lora_config.h"

namespace {

using millrace::models::LoraBase;

// A llama of two layers that adapters are for.
LoraBase Base() {
  LoraBase base;
  base.config.architecture = "llama";
  base.config.layers = 2;
  base.config.hidden = 32;
  base.config.ffn = 48;
  base.config.heads = 2;
  base.config.kv_heads = 1;
  base.config.head_dim = 16;
  base.config.vocab = 64;
  base.config.specs.resize(2);
  return base;
}

void LoadAdapter(std::string_view bytes) {
  static const LoraBase base = Base();
  const int file = memfd_create("adapter", 0);
  if (file < 0) return;
  if (write(file, bytes.data(), bytes.size()) ==
      static_cast<ssize_t>(bytes.size())) {
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    static_cast<void>(millrace::models::LoadLora(path, base).ok());
  }
  close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data + 1),
                              size - 1);
  switch (data[0] % 4) {
    case 0:
      if (const auto json = millrace::ParseJson(rest); json.ok()) {
        static_cast<void>(millrace::models::ReadHfConfig(*json).ok());
      }
      return 0;
    case 1: {
      const auto config = millrace::models::encoder::ReadEncoderConfig(rest);
      if (config.ok()) {
        CHECK(config->hidden % config->heads == 0, "heads divide the row");
      }
      return 0;
    }
    case 2:
      static_cast<void>(millrace::models::ParsePeftConfig(rest).ok());
      return 0;
    default:
      LoadAdapter(rest);
      return 0;
  }
}
