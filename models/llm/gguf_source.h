// A GGUF file as a model's source.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/files/gguf.h"
#include "models/llm/source.h"

namespace millrace::models {

class GgufSource final : public ModelSource {
 public:
  explicit GgufSource(GgufFile file);

  const GgufFile& file() const { return file_; }

  std::string format() const override;
  int64_t file_bytes() const override { return file_.file_bytes(); }
  StatusOr<std::string> Architecture() const override;
  std::string name() const override;
  bool qk_as_trained() const override { return false; }
  std::string KeyName(std::string_view key) const override;
  std::string TensorName(std::string_view name) const override;
  void WillRead() const override;
  void DropPages() const override;
  StatusOr<Vocabulary> ReadVocabulary() const override;
  StatusOr<std::string> ChatTemplateText() const override;

 private:
  const GgufFile file_;
};

}  // namespace millrace::models
