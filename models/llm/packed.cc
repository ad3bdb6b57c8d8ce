// Keys go out under GGUF names with the types that hold them best; reading them
// back is the ordinary GGUF source's business.
#include "models/llm/packed.h"

#include <array>
#include <utility>

#include "config/base/log.h"
#include "models/files/gguf_writer.h"

namespace millrace::models {
namespace {

constexpr int64_t kVersion = 1;
// Packed bytes begin on a page of memory.
constexpr uint32_t kAlignment = 4096;
constexpr int64_t kMaxDim = int64_t{1} << 32;

int64_t NumberOf(TokenKind kind) {
  switch (kind) {
    case TokenKind::kNormal:
      return 1;
    case TokenKind::kControl:
      return 3;
    case TokenKind::kUserDefined:
      return 4;
    case TokenKind::kUnused:
      return 5;
    case TokenKind::kByte:
      return 6;
  }
  return 1;
}

void AddValue(const std::string& key, const SourceValue& value,
              GgufWriter& writer) {
  if (const auto* b = std::get_if<bool>(&value.value)) {
    writer.AddBool(key, *b);
  } else if (const auto* n = std::get_if<int64_t>(&value.value)) {
    writer.AddInt(key, *n);
  } else if (const auto* x = std::get_if<double>(&value.value)) {
    writer.AddFloat(key, *x);
  } else if (const auto* text = std::get_if<std::string>(&value.value)) {
    writer.AddString(key, *text);
  } else if (const auto* many =
                 std::get_if<std::vector<int64_t>>(&value.value)) {
    writer.AddInts(key, *many);
  }
}

void AddIds(const char* key, std::span<const int32_t> ids, GgufWriter& writer) {
  writer.AddInts(key, std::vector<int64_t>(ids.begin(), ids.end()));
}

void AddSentencePieces(const Vocabulary& vocabulary, GgufWriter& writer) {
  writer.AddInt("millrace.packed.space_prefix",
                static_cast<int64_t>(vocabulary.space_prefix));
  writer.AddBool("millrace.packed.split_words", vocabulary.split_words);
  writer.AddBool("millrace.packed.byte_fallback", vocabulary.byte_fallback);
  writer.AddBool("millrace.packed.fuse_unknown", vocabulary.fuse_unknown);
  writer.AddBool("millrace.packed.nfc", vocabulary.nfc);
  if (vocabulary.unk_id >= 0) {
    writer.AddInt("tokenizer.ggml.unknown_token_id", vocabulary.unk_id);
  }
}

void AddVocabulary(const Vocabulary& vocabulary, bool adds_eos,
                   GgufWriter& writer) {
  writer.AddString("tokenizer.ggml.model", vocabulary.model);
  writer.AddString("tokenizer.ggml.pre", vocabulary.pre);
  writer.AddStrings("tokenizer.ggml.tokens", vocabulary.tokens);
  std::vector<int64_t> kinds;
  for (const TokenKind kind : vocabulary.kinds) {
    kinds.push_back(NumberOf(kind));
  }
  writer.AddInts("tokenizer.ggml.token_type", kinds);
  writer.AddStrings("tokenizer.ggml.merges", vocabulary.merges);
  if (!vocabulary.scores.empty()) {
    // Those of a tokenizer.json are doubles, and which of two cuts of a text is
    // the best may lie in their last bits.
    writer.AddDoubles("tokenizer.ggml.scores", vocabulary.scores);
  }
  if (vocabulary.model != "gpt2") AddSentencePieces(vocabulary, writer);
  AddIds("millrace.packed.lstrip_ids", vocabulary.lstrip_ids, writer);
  AddIds("millrace.packed.rstrip_ids", vocabulary.rstrip_ids, writer);
  if (vocabulary.bos_id >= 0) {
    writer.AddInt("tokenizer.ggml.bos_token_id", vocabulary.bos_id);
  }
  if (vocabulary.eos_id >= 0) {
    writer.AddInt("tokenizer.ggml.eos_token_id", vocabulary.eos_id);
  }
  writer.AddBool("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  writer.AddBool("tokenizer.ggml.add_eos_token", adds_eos);
  if (vocabulary.model == "gpt2" && vocabulary.pre.empty()) {
    std::vector<std::string> patterns;
    std::vector<int64_t> drops;
    for (const SplitRule& rule : vocabulary.splits) {
      patterns.push_back(rule.pattern);
      drops.push_back(rule.drop_gaps ? 1 : 0);
    }
    writer.AddStrings("millrace.packed.splits", patterns);
    writer.AddInts("millrace.packed.drop_gaps", drops);
    writer.AddBool("millrace.packed.whole_pieces_first",
                   vocabulary.whole_pieces_first);
    writer.AddBool("millrace.packed.nfc", vocabulary.nfc);
  }
  const std::vector<int64_t> ends(vocabulary.eog_ids.begin(),
                                  vocabulary.eog_ids.end());
  writer.AddInts("millrace.packed.eog_ids", ends);
}

// Whether the backend has the tensor among its packed bytes. Biases of experts
// are matrices, a row for each expert, and are no weights of a layer.
bool IsPacked(std::string_view name, const FileTensor& tensor) {
  return tensor.num_dims >= 2 && !name.ends_with(".bias");
}

Status Malformed(const std::string& why) {
  return InvalidArgument("the packed part of the file is damaged: " + why +
                         "; make the file again with `millrace convert`");
}

StatusOr<FileTensor> MatrixOf(std::string_view name, int64_t type, int64_t k,
                              int64_t rows) {
  const std::string quoted = "'" + std::string(name) + "'";
  const GgmlTypeInfo* info = type < 0 || type > 1000
                                 ? nullptr
                                 : FindGgmlType(static_cast<uint32_t>(type));
  if (info == nullptr) {
    return Malformed(quoted + " has the unknown type " + std::to_string(type));
  }
  if (k < 1 || rows < 1 || k > kMaxDim || rows > kMaxDim ||
      k % info->block_values != 0 || k > (int64_t{1} << 40) / rows) {
    return Malformed(quoted + " has " + std::to_string(rows) + " rows of " +
                     std::to_string(k) + " values");
  }
  FileTensor matrix{};
  matrix.name = name;
  matrix.type = info->type;
  matrix.num_dims = 2;
  matrix.dims = {k, rows, 1, 1};
  matrix.num_elements = k * rows;
  matrix.row_bytes = k / info->block_values * info->block_bytes;
  return matrix;
}

}  // namespace

StatusOr<std::optional<PackedForm>> ReadPackedForm(const GgufFile& file) {
  if (file.FindKey("millrace.packed.version") == nullptr) {
    return std::optional<PackedForm>();
  }
  ASSIGN_OR_RETURN(const int64_t version, file.Int("millrace.packed.version"));
  if (version != kVersion) {
    return Unimplemented("the file's packed form has version " +
                         std::to_string(version) + ", this program reads " +
                         std::to_string(kVersion) +
                         "; make the file again with `millrace convert`");
  }
  PackedForm form;
  ASSIGN_OR_RETURN(const std::string_view layout,
                   file.String("millrace.packed.layout"));
  form.weights.layout = layout;
  ASSIGN_OR_RETURN(form.as_trained, file.Bool("millrace.packed.qk_as_trained"));
  ASSIGN_OR_RETURN(const auto names, file.Strings("millrace.packed.names"));
  ASSIGN_OR_RETURN(const auto types, file.Ints("millrace.packed.types"));
  ASSIGN_OR_RETURN(const auto dims, file.Ints("millrace.packed.dims"));
  if (types.size() != names.size() || dims.size() != 2 * names.size()) {
    return Malformed(std::to_string(names.size()) + " names, " +
                     std::to_string(types.size()) + " types and " +
                     std::to_string(dims.size()) + " dims");
  }
  for (size_t i = 0; i < names.size(); ++i) {
    ASSIGN_OR_RETURN(FileTensor matrix, MatrixOf(names[i], types[i],
                                                 dims[2 * i], dims[2 * i + 1]));
    form.matrices.push_back(matrix);
  }
  const FileTensor* weights = file.FindTensor(kPackedWeights);
  if (weights == nullptr) return Malformed("it has no weights");
  form.weights.bytes = weights->data;
  return std::optional<PackedForm>(std::move(form));
}

Status WritePacked(const ModelSource& source, const Backend& backend,
                   const std::string& path) {
  if (source.packed() != nullptr) {
    return FailedPrecondition(
        "the file is in packed form already; convert from the original");
  }
  GgufWriter writer(kAlignment);
  ASSIGN_OR_RETURN(const std::string architecture, source.Architecture());
  writer.AddString("general.architecture", architecture);
  writer.AddString("general.name", source.name());
  ASSIGN_OR_RETURN(const std::optional<VectorForm> vectors,
                   source.ReadVectorForm());
  for (const auto& [key, value] : source.values()) {
    if (vectors && key == "pooling_type") continue;
    AddValue(architecture + "." + key, value, writer);
  }
  ASSIGN_OR_RETURN(Vocabulary vocabulary, source.ReadVocabulary());
  ASSIGN_OR_RETURN(bool adds_eos, source.AddsEos());
  if (vectors) {
    writer.AddInt(architecture + ".pooling_type", vectors->pooling_type);
    vocabulary.add_bos = vectors->bos_id >= 0;
    if (vocabulary.add_bos) vocabulary.bos_id = vectors->bos_id;
    adds_eos = vectors->eos_id >= 0;
    if (adds_eos) vocabulary.eos_id = vectors->eos_id;
  }
  AddVocabulary(vocabulary, adds_eos, writer);
  const StatusOr<std::string> text = source.ChatTemplateText();
  if (!text.ok()) {
    LogWarning("the packed model has no chat template",
               {{"why", text.status().message()}});
  } else if (!text->empty()) {
    writer.AddString("tokenizer.chat_template", *text);
  }

  ASSIGN_OR_RETURN(const GenerationDefaults defaults,
                   source.ReadGenerationDefaults());
  for (const auto& [key, value] :
       {std::pair("temperature", defaults.temperature),
        std::pair("top_p", defaults.top_p), std::pair("min_p", defaults.min_p),
        std::pair("repetition_penalty", defaults.repetition_penalty)}) {
    if (value) writer.AddFloat(std::string("millrace.packed.") + key, *value);
  }
  if (defaults.top_k) {
    writer.AddInt("millrace.packed.top_k", *defaults.top_k);
  }

  writer.AddInt("millrace.packed.version", kVersion);
  writer.AddString("millrace.packed.layout", backend.PackedLayout());
  writer.AddBool("millrace.packed.qk_as_trained", source.as_trained());
  std::vector<std::string> names;
  std::vector<int64_t> types, dims;
  for (const auto& [name, tensor] : source.NamedTensors()) {
    if (!IsPacked(name, *tensor)) {
      writer.AddTensor(
          name, tensor->type,
          std::span(tensor->dims).first(static_cast<size_t>(tensor->num_dims)),
          tensor->data);
      continue;
    }
    names.push_back(name);
    types.push_back(static_cast<int64_t>(tensor->type));
    dims.push_back(tensor->dims[0]);
    dims.push_back(tensor->num_elements / tensor->dims[0]);
  }
  writer.AddStrings("millrace.packed.names", names);
  writer.AddInts("millrace.packed.types", types);
  writer.AddInts("millrace.packed.dims", dims);
  const std::span<const std::byte> packed = backend.packed_weights();
  const std::array<int64_t, 1> size = {static_cast<int64_t>(packed.size())};
  writer.AddTensor(kPackedWeights, GgmlType::kI8, size, packed);
  return writer.Write(path);
}

}  // namespace millrace::models
