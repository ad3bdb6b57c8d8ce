// A Hugging Face folder as a model's source:
//
//   config.json               hyper-parameters
//   model.safetensors         weights in F32, F16 or BF16; or in several files
//                             that model.safetensors.index.json lists
//   tokenizer.json            or, without it, tekken.json, tokenizer.model
//   tokenizer_config.json, special_tokens_map.json, chat_template.jinja,
//   generation_config.json    where there are any
//
// The text files are read when asked for, weights are mapped.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/files/safetensors.h"
#include "models/llm/hf_config.h"
#include "models/llm/hf_names.h"
#include "models/llm/source.h"

namespace millrace::models {

class HfSource final : public ModelSource {
 public:
  // Errors name the file and in it the key or tensor.
  static StatusOr<std::unique_ptr<const ModelSource>> Open(
      const std::string& folder);

  std::string format() const override;
  int64_t file_bytes() const override;
  StatusOr<std::string> Architecture() const override {
    return config_.architecture;
  }
  std::string name() const override;
  bool as_trained() const override { return true; }
  std::string KeyName(std::string_view key) const override {
    return HfKeyName(key);
  }
  std::string TensorName(std::string_view name) const override {
    return NestedName(HfTensorName(name, config_.architecture));
  }
  void WillRead() const override;
  void DropPages() const override;
  StatusOr<Vocabulary> ReadVocabulary() const override;
  StatusOr<std::string> ChatTemplateText() const override;
  StatusOr<std::optional<VectorForm>> ReadVectorForm() const override;
  StatusOr<GenerationDefaults> ReadGenerationDefaults() const override;

 private:
  HfSource(std::string folder, HfConfig config)
      : folder_(std::move(folder)), config_(std::move(config)) {}
  Status OpenWeights();
  StatusOr<Vocabulary> ReadTokenizer() const;
  // The class has no head, or sentence-transformers has written the folder.
  bool MakesVectors() const;
  Status ReadPooling(VectorForm& form) const;
  // A plain folder's name as a language model within another class has it.
  std::string NestedName(std::string name) const;
  // Makes a tensor's name that of a plain folder; false: it is not the language
  // model's.
  bool TakePlainName(std::string& name) const;
  Status AddTensors();
  // The same matrix with rows and columns changed places; the bytes are here.
  FileTensor Transposed(const FileTensor& tensor);

  // Rows of q, k and v of each head sorted: all of q, of k, of v.
  StatusOr<FileTensor> QkvTogether(const FileTensor& tensor);

  const std::string folder_;
  const HfConfig config_;
  std::vector<SafetensorsFile> files_;
  std::deque<std::vector<std::byte>> transposed_;
};

}  // namespace millrace::models
