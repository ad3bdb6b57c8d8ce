// An adapter over a base model beside the model with the adapter merged into
// its weights: where rows of q and k stand is part of what an adapter means.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/files/safetensors.h"
#include "models/llm/lora.h"
#include "models/llm/model.h"
#include "models/llm/teacher_forcing.h"
#include "models/tensor/quant.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/random_adapter.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::vector<float> FloatsOf(const SafetensorsTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements));
  CHECK(DequantizeRow(tensor.dtype == "F32" ? GgmlType::kF32 : GgmlType::kF16,
                      tensor.data.data(), tensor.num_elements, values.data()),
        "tiny models are in F32 or F16");
  return values;
}

// A copy of a folder whose weights are the base's plus B times A times the
// scale, all in F32.
std::string Merged(const std::string& base, const std::string& adapter) {
  const auto weights = SafetensorsFile::Open(base + "/model.safetensors");
  const auto deltas =
      SafetensorsFile::Open(adapter + "/adapter_model.safetensors");
  CHECK(weights.ok() && deltas.ok(), "both can be read");
  Json header = Json::object();
  std::string data;
  for (const SafetensorsTensor& tensor : weights->tensors()) {
    std::vector<float> merged = FloatsOf(tensor);
    const std::string stem =
        "base_model.model." + tensor.name.substr(0, tensor.name.rfind('.') + 1);
    if (const auto* a = deltas->FindTensor(stem + "lora_A.weight")) {
      const std::vector<float> of_a = FloatsOf(*a);
      const std::vector<float> of_b =
          FloatsOf(*deltas->FindTensor(stem + "lora_B.weight"));
      const size_t columns = static_cast<size_t>(tensor.shape[1]);
      for (size_t i = 0; i < merged.size(); ++i) {
        for (size_t r = 0; r < kRandomAdapterRank; ++r) {
          merged[i] += kRandomAdapterScale *
                       of_b[i / columns * kRandomAdapterRank + r] *
                       of_a[r * columns + i % columns];
        }
      }
    }
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(merged.data()),
                merged.size() * sizeof(float));
    header[tensor.name] = {{"dtype", "F32"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, data.size()}}};
  }
  const std::string folder = TempPath("merged_adapter");
  fs::remove_all(folder);
  fs::copy(base, folder);
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // floats stand aligned
  const uint64_t size = text.size();
  std::ofstream out(folder + "/model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size);
  out << text << data;
  return folder;
}

std::vector<float> LogitsWith(LlmModel& model,
                              std::shared_ptr<const LoraAdapter> adapter) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 40; ++i) tokens.push_back(3 + 7 * i % 250);
  std::vector<float> all;
  const Status status = ScoreTokens(
      model, tokens, 16,
      [&](int32_t, std::span<const float> logits) {
        all.insert(all.end(), logits.begin(), logits.end());
      },
      0, std::move(adapter));
  CHECK(status.ok(), "tokens are scored");
  return all;
}

// Rows of q and k stand as in training (llama4), in folders of all families,
// and in another order in GGUF files (llama).
TEST(LoraMerged, GivesTheLogitsOfTheMergedModel) {
  LlmOptions options = TinyOptions(2);
  options.settings.compute_dtype = "f32";
  options.settings.kv_cache_dtype = "f32";
  options.settings.max_model_len = 128;
  for (const std::string family :
       {"tests/data/hf_llama4", "tests/data/hf_llama_yarn"}) {
    const std::string adapter = RandomAdapter(family);
    const std::string merged = Merged(family, adapter);
    StatusOr<LlmModel> whole = LoadLlm(merged, options);
    ASSERT_TRUE(whole.ok()) << whole.status().ToString();
    const std::vector<float> want = LogitsWith(*whole, nullptr);
    for (const std::string file : {"", "/model.gguf"}) {
      SCOPED_TRACE(family + file);
      StatusOr<LlmModel> base = LoadLlm(family + file, options);
      ASSERT_TRUE(base.ok()) << base.status().ToString();
      const auto loaded = LoadLora(adapter, *base->lora_base);
      ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
      const std::vector<float> got = LogitsWith(*base, *loaded);
      const std::vector<float> plain = LogitsWith(*base, nullptr);
      ASSERT_EQ(got.size(), want.size());
      double off = 0, moved = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        off = std::max<double>(off, std::abs(got[i] - want[i]));
        moved = std::max<double>(moved, std::abs(plain[i] - want[i]));
      }
      // Both sides sum in f32, in other orders.
      EXPECT_LT(off, 1e-3);
      EXPECT_GT(moved, 0.5);
    }
    fs::remove_all(merged);
    fs::remove_all(adapter);
  }
}

}  // namespace
}  // namespace millrace::models
