#include "tests/unit/models/llm/random_adapter.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "tests/support/temp_path.h"

namespace millrace::models {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string RandomAdapter(const std::string& base) {
  std::ifstream in(base + "/config.json");
  const Json config = Json::parse(in);
  const int64_t hidden = config["hidden_size"];
  const int64_t head_dim = config["head_dim"];
  const int64_t q = head_dim * config["num_attention_heads"].get<int64_t>();
  const int64_t kv = head_dim * config["num_key_value_heads"].get<int64_t>();
  Json header = Json::object();
  std::vector<float> values;
  uint32_t state = 7;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    const size_t begin = values.size() * sizeof(float);
    for (int64_t i = 0; i < rows * columns; ++i) {
      state = state * 1664525u + 1013904223u;
      values.push_back(static_cast<float>(state >> 8) / (1 << 24) - 0.5f);
    }
    header[name] = {{"dtype", "F32"},
                    {"shape", {rows, columns}},
                    {"data_offsets", {begin, values.size() * sizeof(float)}}};
  };
  const int64_t layers = config["num_hidden_layers"];
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string before = "base_model.model.model.layers." +
                               std::to_string(layer) + ".self_attn.";
    for (const auto& [name, inputs, outputs] :
         {std::tuple("q_proj", hidden, q), std::tuple("k_proj", hidden, kv),
          std::tuple("v_proj", hidden, kv), std::tuple("o_proj", q, hidden)}) {
      add(before + name + ".lora_A.weight", kRandomAdapterRank, inputs);
      add(before + name + ".lora_B.weight", outputs, kRandomAdapterRank);
    }
  }
  const std::string folder = TempPath("random_adapter");
  fs::create_directories(folder);
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream out(folder + "/adapter_model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size);
  out << text;
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  std::ofstream(folder + "/adapter_config.json")
      << R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "bias": "none"})";
  return folder;
}

}  // namespace millrace::models
