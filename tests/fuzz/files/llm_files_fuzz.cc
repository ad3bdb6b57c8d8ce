// What stands beside weights, from outside: config.json of a language model or
// an encoder, adapter_config.json, an adapter in GGUF, or PEFT's folder of one
// (adapter_config.json, a NUL, adapter_model.safetensors), by the first byte.
// Each is read or refused.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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
const LoraBase& Base() {
  static const LoraBase base = [] {
    LoraBase made;
    made.config.architecture = "llama";
    made.config.layers = 2;
    made.config.hidden = 32;
    made.config.ffn = 48;
    made.config.heads = 2;
    made.config.kv_heads = 1;
    made.config.head_dim = 16;
    made.config.vocab = 64;
    made.config.specs.resize(2);
    return made;
  }();
  return base;
}

// A folder of this process, gone when it ends.
class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "peft-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr, "a folder can be made");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  void Write(const char* name, std::string_view bytes) const {
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void LoadPeft(std::string_view bytes) {
  static const Folder folder;
  const size_t cut = std::min(bytes.find('\0'), bytes.size());
  folder.Write("adapter_config.json", bytes.substr(0, cut));
  folder.Write("adapter_model.safetensors",
               bytes.substr(std::min(cut + 1, bytes.size())));
  static_cast<void>(
      millrace::models::LoadLora(folder.path().string(), Base()).ok());
}

void LoadAdapter(std::string_view bytes) {
  const int file = memfd_create("adapter", 0);
  if (file < 0) return;
  if (write(file, bytes.data(), bytes.size()) ==
      static_cast<ssize_t>(bytes.size())) {
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    static_cast<void>(millrace::models::LoadLora(path, Base()).ok());
  }
  close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data + 1),
                              size - 1);
  switch (data[0] % 5) {
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
    case 3:
      LoadAdapter(rest);
      return 0;
    default:
      LoadPeft(rest);
      return 0;
  }
}
