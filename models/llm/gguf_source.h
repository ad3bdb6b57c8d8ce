// A GGUF file as a model's source, one in packed form included.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/files/gguf.h"
#include "models/llm/packed.h"
#include "models/llm/source.h"

namespace millrace::models {

class GgufSource final : public ModelSource {
 public:
  explicit GgufSource(GgufFile file, std::optional<PackedForm> packed = {});

  const GgufFile& file() const { return file_; }

  std::string format() const override;
  int64_t file_bytes() const override { return file_.file_bytes(); }
  StatusOr<std::string> Architecture() const override;
  std::string name() const override;
  bool as_trained() const override { return packed_ && packed_->as_trained; }
  const PackedWeights* packed() const override {
    return packed_ ? &packed_->weights : nullptr;
  }
  std::string KeyName(std::string_view key) const override;
  std::string TensorName(std::string_view name) const override;
  void WillRead() const override;
  void DropPages() const override;
  StatusOr<Vocabulary> ReadVocabulary() const override;
  StatusOr<bool> AddsEos() const override {
    return file_.Bool("tokenizer.ggml.add_eos_token", false);
  }
  StatusOr<std::string> ChatTemplateText() const override;
  // The keys general.sampling.*; a file in packed form keeps those of its
  // original.
  StatusOr<GenerationDefaults> ReadGenerationDefaults() const override;

 private:
  const GgufFile file_;
  const std::optional<PackedForm> packed_;  // views into file_
};

}  // namespace millrace::models
