// Names are GGUF's own, so nothing is mapped; keys lose the architecture's
// prefix ("llama.block_count" is block_count).
#include "models/llm/gguf_source.h"

#include <cmath>
#include <utility>

#include "models/llm/generation_config.h"
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

// The decimal number that was rounded to this float: 0.95, not 0.949999988.
double AsWritten(double value) {
  const double scaled = value * 1e6;
  return std::abs(scaled) < 1e12 ? std::round(scaled) / 1e6 : value;
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

// Of a file in packed form those that its original had; else the keys that
// llama.cpp reads.
StatusOr<GenerationDefaults> GgufSource::ReadGenerationDefaults() const {
  constexpr std::string_view kPacked = "millrace.packed.";
  constexpr std::string_view kSampling = "general.sampling.";
  const bool packed = packed_.has_value();
  const std::string prefix(packed ? kPacked : kSampling);
  GenerationDefaults out;
  for (const auto& [key, value] :
       {std::pair(packed ? "temperature" : "temp", &out.temperature),
        std::pair("top_p", &out.top_p), std::pair("min_p", &out.min_p),
        std::pair(packed ? "repetition_penalty" : "penalty_repeat",
                  &out.repetition_penalty)}) {
    const std::string name = prefix + key;
    if (file_.FindKey(name) == nullptr) continue;
    ASSIGN_OR_RETURN(const double number, file_.Float(name));
    *value = AsWritten(number);
  }
  if (file_.FindKey(prefix + "top_k") != nullptr) {
    ASSIGN_OR_RETURN(out.top_k, file_.Int(prefix + "top_k"));
  }
  RETURN_IF_ERROR(CheckGenerationDefaults(out, "the keys " + prefix + "*"));
  return out;
}

StatusOr<std::string> GgufSource::ChatTemplateText() const {
  ASSIGN_OR_RETURN(const std::string_view text,
                   file_.String("tokenizer.chat_template", ""));
  return std::string(text);
}

}  // namespace millrace::models
