// Typed look-ups, the same for every format, and the one place that knows which
// formats there are.
#include "models/llm/source.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "models/llm/gguf_source.h"
#include "models/llm/hf_source.h"
#include "models/llm/packed.h"

namespace millrace::models {
namespace {

std::string Quoted(const std::string& name) { return "'" + name + "'"; }

}  // namespace

const SourceValue* ModelSource::FindKey(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

StatusOr<const SourceValue*> ModelSource::Wanted(std::string_view key) const {
  const SourceValue* value = FindKey(key);
  if (value == nullptr) {
    return NotFound("the file has no key " + Quoted(KeyName(key)));
  }
  return value;
}

Status ModelSource::Mistyped(std::string_view key, const SourceValue& value,
                             std::string_view wanted) const {
  return InvalidArgument("key " + Quoted(KeyName(key)) + " has type " +
                         value.type + "; expected " + std::string(wanted));
}

StatusOr<int64_t> ModelSource::Int(std::string_view key) const {
  ASSIGN_OR_RETURN(const SourceValue* value, Wanted(key));
  if (const auto* n = std::get_if<int64_t>(&value->value)) return *n;
  return Mistyped(key, *value, "an integer");
}

StatusOr<double> ModelSource::Float(std::string_view key) const {
  ASSIGN_OR_RETURN(const SourceValue* value, Wanted(key));
  if (const auto* x = std::get_if<double>(&value->value)) return *x;
  if (const auto* n = std::get_if<int64_t>(&value->value)) {
    return static_cast<double>(*n);
  }
  return Mistyped(key, *value, "a number");
}

StatusOr<bool> ModelSource::Bool(std::string_view key) const {
  ASSIGN_OR_RETURN(const SourceValue* value, Wanted(key));
  if (const auto* b = std::get_if<bool>(&value->value)) return *b;
  return Mistyped(key, *value, "a bool");
}

StatusOr<std::string> ModelSource::String(std::string_view key) const {
  ASSIGN_OR_RETURN(const SourceValue* value, Wanted(key));
  if (const auto* s = std::get_if<std::string>(&value->value)) return *s;
  return Mistyped(key, *value, "a string");
}

StatusOr<std::vector<int64_t>> ModelSource::Ints(std::string_view key) const {
  ASSIGN_OR_RETURN(const SourceValue* value, Wanted(key));
  if (const auto* n = std::get_if<std::vector<int64_t>>(&value->value)) {
    return *n;
  }
  return Mistyped(key, *value, "an array of integers");
}

StatusOr<int64_t> ModelSource::Int(std::string_view key,
                                   int64_t otherwise) const {
  if (FindKey(key) == nullptr) return otherwise;
  return Int(key);
}
StatusOr<double> ModelSource::Float(std::string_view key,
                                    double otherwise) const {
  if (FindKey(key) == nullptr) return otherwise;
  return Float(key);
}
StatusOr<bool> ModelSource::Bool(std::string_view key, bool otherwise) const {
  if (FindKey(key) == nullptr) return otherwise;
  return Bool(key);
}
StatusOr<std::string> ModelSource::String(std::string_view key,
                                          std::string_view otherwise) const {
  if (FindKey(key) == nullptr) return std::string(otherwise);
  return String(key);
}

const FileTensor* ModelSource::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(std::string(name));
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

std::vector<std::pair<std::string, const FileTensor*>>
ModelSource::NamedTensors() const {
  std::vector<std::pair<std::string, const FileTensor*>> out;
  for (const auto& [name, index] : tensor_index_) {
    out.emplace_back(name, &tensors_[index]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void ModelSource::AddValue(std::string key, SourceValue value) {
  values_.insert_or_assign(std::move(key), std::move(value));
}

void ModelSource::AddTensor(std::string name, const FileTensor& tensor) {
  if (!name.empty()) tensor_index_.emplace(std::move(name), tensors_.size());
  tensors_.push_back(tensor);
}

StatusOr<std::unique_ptr<const ModelSource>> OpenModelSource(
    const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return HfSource::Open(path);
  }
  if (path.ends_with(".safetensors")) {
    return InvalidArgument("'" + path +
                           "' holds weights only; give the folder it is in");
  }
  ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
  StatusOr<std::optional<PackedForm>> packed = ReadPackedForm(file);
  if (!packed.ok()) return packed.status().Prefixed("'" + path + "'");
  return std::unique_ptr<const ModelSource>(
      std::make_unique<GgufSource>(std::move(file), std::move(*packed)));
}

}  // namespace millrace::models
