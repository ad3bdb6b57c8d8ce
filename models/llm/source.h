// A language model on disk, whatever its format: hyper-parameters, tensors,
// vocabulary and chat template under one set of names. Those are GGUF's
// ("block_count", "blk.0.attn_q.weight"); a source of another format maps its
// own to them, and errors name what the file itself says.
//
//   ASSIGN_OR_RETURN(const auto source, OpenModelSource("model.gguf"));
//   ASSIGN_OR_RETURN(int64_t layers, source->Int("block_count"));
//   const FileTensor* norm = source->FindTensor("output_norm.weight");
//
// A format is one subclass and one line of OpenModelSource. Tensors and names
// are views that live as long as the source. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "config/base/status.h"
#include "models/files/file_tensor.h"
#include "models/text/generation_defaults.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// A hyper-parameter.
struct SourceValue {
  std::string type;  // what the file calls it: "uint32", "array of int32"
  bool is_array = false;
  // Nothing: of a kind that is no hyper-parameter (an array of strings).
  std::variant<std::monostate, bool, int64_t, double, std::string,
               std::vector<int64_t>>
      value;
};

// Weights as a backend packed them before; see packed.h.
struct PackedWeights {
  std::string layout;
  std::span<const std::byte> bytes;
};

// How texts become vectors, as keys of a GGUF say it.
struct VectorForm {
  int64_t pooling_type = 0;  // 1: mean, 2: the first row, 3: the last
  int32_t bos_id = -1;       // stands before a text; -1: nothing does
  int32_t eos_id = -1;       // and behind it
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // ---- what it is ----
  virtual std::string format() const = 0;  // "GGUF version 3"
  virtual int64_t file_bytes() const = 0;  // of all its files
  // The family's name as GGUF spells it ("llama"); an error names the key that
  // is absent or unknown.
  virtual StatusOr<std::string> Architecture() const = 0;
  virtual std::string name() const = 0;  // of the model; may be empty
  // Weights stand as in training. GGUF files hold some families' weights
  // changed: llama's rows of q and k so that pairs to rotate are neighbours,
  // gemma's norms with the 1 that is added to them.
  virtual bool as_trained() const = 0;

  // ---- hyper-parameters, without the architecture's prefix ----
  // How the file spells a key, there or not.
  virtual std::string KeyName(std::string_view key) const = 0;
  const SourceValue* FindKey(std::string_view key) const;  // null: absent
  const std::map<std::string, SourceValue, std::less<>>& values() const {
    return values_;
  }
  // NOT_FOUND when absent; INVALID_ARGUMENT when of another type. With
  // `otherwise`, absent gives that.
  StatusOr<int64_t> Int(std::string_view key) const;
  StatusOr<double> Float(std::string_view key) const;
  StatusOr<bool> Bool(std::string_view key) const;
  StatusOr<std::string> String(std::string_view key) const;
  // Arrays of any integer type, and of bools.
  StatusOr<std::vector<int64_t>> Ints(std::string_view key) const;
  StatusOr<int64_t> Int(std::string_view key, int64_t otherwise) const;
  StatusOr<double> Float(std::string_view key, double otherwise) const;
  StatusOr<bool> Bool(std::string_view key, bool otherwise) const;
  StatusOr<std::string> String(std::string_view key,
                               std::string_view otherwise) const;

  // ---- tensors ----
  // How the file spells a tensor's name, there or not.
  virtual std::string TensorName(std::string_view name) const = 0;
  const FileTensor* FindTensor(std::string_view name) const;  // null: absent
  // All of the file, those without a name of ours included.
  const std::vector<FileTensor>& tensors() const { return tensors_; }
  // Those with a name of ours, and that name; in order of names.
  std::vector<std::pair<std::string, const FileTensor*>> NamedTensors() const;
  // Null in most; else matrices have no data of their own.
  virtual const PackedWeights* packed() const { return nullptr; }
  // Hints: all tensors will be read soon; none will be read again soon.
  virtual void WillRead() const = 0;
  virtual void DropPages() const = 0;

  // ---- text ----
  virtual StatusOr<Vocabulary> ReadVocabulary() const = 0;
  virtual StatusOr<std::string> ChatTemplateText() const = 0;  // "": none
  // Whether the model's end stands behind a text that becomes a vector.
  virtual StatusOr<bool> AddsEos() const { return false; }
  // Of a model that makes vectors of texts, where other files than those of the
  // keys say how; else nothing. UNIMPLEMENTED for what keys of a GGUF cannot
  // say.
  virtual StatusOr<std::optional<VectorForm>> ReadVectorForm() const {
    return std::optional<VectorForm>();
  }
  virtual StatusOr<GenerationDefaults> ReadGenerationDefaults() const {
    return GenerationDefaults{};
  }

 protected:
  void AddValue(std::string key, SourceValue value);
  // `name` is ours, empty for a tensor that has none.
  void AddTensor(std::string name, const FileTensor& tensor);

 private:
  StatusOr<const SourceValue*> Wanted(std::string_view key) const;
  Status Mistyped(std::string_view key, const SourceValue& value,
                  std::string_view wanted) const;

  std::map<std::string, SourceValue, std::less<>> values_;
  std::vector<FileTensor> tensors_;
  std::unordered_map<std::string, size_t> tensor_index_;
};

// A GGUF file or a Hugging Face folder. Errors name the path.
StatusOr<std::unique_ptr<const ModelSource>> OpenModelSource(
    const std::string& path);

}  // namespace millrace::models
