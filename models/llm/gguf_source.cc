// Names are GGUF's own, so nothing is mapped; keys lose the architecture's
// prefix ("llama.block_count" is block_count).
#include "models/llm/gguf_source.h"

#include <utility>

#include "models/llm/vocabulary.h"

namespace millrace::models {
namespace {

SourceValue ValueOf(const GgufFile& file, const GgufKey& key) {
  SourceValue out;
  out.type = GgufValueTypeName(key.value.type);
  switch (key.value.type) {
    case GgufValueType::kString:
      out.value = std::string(key.value.bytes);
      return out;
    case GgufValueType::kBool:
      out.value = key.value.bytes[0] != 0;
      return out;
    case GgufValueType::kFloat32:
    case GgufValueType::kFloat64:
      if (const auto x = file.Float(key.name); x.ok()) out.value = *x;
      return out;
    case GgufValueType::kArray:
      out.is_array = true;
      out.type +=
          " of " + std::string(GgufValueTypeName(key.value.element_type));
      if (key.value.element_type == GgufValueType::kBool) {
        std::vector<int64_t> flags;
        for (const char c : key.value.bytes) flags.push_back(c != 0);
        out.value = std::move(flags);
      } else if (auto ints = file.Ints(key.name); ints.ok()) {
        out.value = std::move(*ints);
      }
      return out;
    default:
      if (const auto n = file.Int(key.name); n.ok()) {
        out.value = *n;
      } else {
        out.type += " above 9223372036854775807";
      }
      return out;
  }
}

}  // namespace

GgufSource::GgufSource(GgufFile file, std::optional<PackedForm> packed)
    : file_(std::move(file)), packed_(std::move(packed)) {
  if (const StatusOr<std::string> architecture = Architecture();
      architecture.ok()) {
    const std::string prefix = *architecture + ".";
    for (const GgufKey& key : file_.keys()) {
      if (!key.name.starts_with(prefix)) continue;
      AddValue(std::string(key.name.substr(prefix.size())),
               ValueOf(file_, key));
    }
  }
  for (const FileTensor& tensor : file_.tensors()) {
    if (packed_ && tensor.name == kPackedWeights) continue;
    AddTensor(std::string(tensor.name), tensor);
  }
  if (!packed_) return;
  for (const FileTensor& matrix : packed_->matrices) {
    AddTensor(std::string(matrix.name), matrix);
  }
}

std::string GgufSource::format() const {
  return "GGUF version " + std::to_string(file_.version()) +
         (packed_ ? ", packed " + packed_->weights.layout : "");
}

StatusOr<std::string> GgufSource::Architecture() const {
  ASSIGN_OR_RETURN(const std::string_view architecture,
                   file_.String("general.architecture"));
  return std::string(architecture);
}

std::string GgufSource::name() const {
  const auto name = file_.String("general.name", "");
  return name.ok() ? std::string(*name) : "";
}

std::string GgufSource::KeyName(std::string_view key) const {
  const StatusOr<std::string> architecture = Architecture();
  return (architecture.ok() ? *architecture + "." : "") + std::string(key);
}

std::string GgufSource::TensorName(std::string_view name) const {
  return std::string(name);
}

void GgufSource::WillRead() const {
  if (file_.mapping() != nullptr) file_.mapping()->WillRead();
}

void GgufSource::DropPages() const {
  const MappedFile* mapping = file_.mapping();
  if (mapping != nullptr) mapping->DropPages(mapping->bytes());
}

StatusOr<Vocabulary> GgufSource::ReadVocabulary() const {
  return models::ReadVocabulary(file_);
}

StatusOr<GenerationDefaults> GgufSource::ReadGenerationDefaults() const {
  GenerationDefaults out;
  for (const auto& [key, value] :
       {std::pair("temperature", &out.temperature),
        std::pair("top_p", &out.top_p), std::pair("min_p", &out.min_p),
        std::pair("repetition_penalty", &out.repetition_penalty)}) {
    const std::string name = std::string("millrace.packed.") + key;
    if (file_.FindKey(name) == nullptr) continue;
    ASSIGN_OR_RETURN(*value, file_.Float(name));
  }
  if (file_.FindKey("millrace.packed.top_k") != nullptr) {
    ASSIGN_OR_RETURN(out.top_k, file_.Int("millrace.packed.top_k"));
  }
  return out;
}

StatusOr<std::string> GgufSource::ChatTemplateText() const {
  ASSIGN_OR_RETURN(const std::string_view text,
                   file_.String("tokenizer.chat_template", ""));
  return std::string(text);
}

}  // namespace millrace::models
