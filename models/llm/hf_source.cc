// Safetensors give shapes with the contiguous dimension last; here it counts as
// the first. Writers align weights to their type, the format does not demand
// it: that is checked here, where weights become rows of numbers.
#include "models/llm/hf_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/files/safetensors_index.h"
#include "models/llm/generation_config.h"
#include "models/llm/hf_experts.h"
#include "models/llm/vocabulary.h"
#include "models/text/hf_tokenizer.h"
#include "models/text/post_processor.h"
#include "models/text/sentence_files.h"
#include "models/text/sentence_model.h"
#include "models/text/tekken.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxJsonBytes = int64_t{8} << 20;
constexpr int64_t kMaxTokenizerBytes = int64_t{128} << 20;
constexpr size_t kMaxNamesBytes = 200;  // of templates, in an error
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

struct Dtype {
  std::string_view name;
  GgmlType type;
};
constexpr Dtype kDtypes[] = {{"F32", GgmlType::kF32},
                             {"F16", GgmlType::kF16},
                             {"BF16", GgmlType::kBF16}};

std::string In(const std::string& folder, const std::string& file) {
  return (std::filesystem::path(folder) / file).string();
}
bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

StatusOr<std::string> ReadText(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const auto size = static_cast<int64_t>(file.bytes().size());
  if (size > max_bytes) {
    return InvalidArgument("'" + path + "' has " + std::to_string(size) +
                           " bytes, the limit is " + std::to_string(max_bytes));
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()),
                     file.bytes().size());
}

StatusOr<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMaxJsonBytes));
  StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return json.status().Prefixed("'" + path + "'");
  if (!json->is_object()) {
    return InvalidArgument("'" + path + "' is no JSON object");
  }
  return json;
}

// Of a file that need not be there: an empty object.
StatusOr<Json> ReadJsonIfThere(const std::string& path) {
  if (!Exists(path)) return Json::object();
  return ReadJson(path);
}

// "bos_token" is a text, or an object whose "content" is one.
std::string TokenText(const Json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_object()) return "";
  const auto content = it->find("content");
  return content != it->end() && content->is_string()
             ? content->get<std::string>()
             : "";
}

StatusOr<FileTensor> TensorOf(const SafetensorsTensor& from) {
  const std::string name = "tensor '" + from.name + "'";
  const auto* dtype =
      std::find_if(std::begin(kDtypes), std::end(kDtypes),
                   [&](const Dtype& d) { return d.name == from.dtype; });
  if (dtype == std::end(kDtypes)) {
    return Unimplemented(name + " has weights of type " +
                         std::string(from.dtype) +
                         "; F32, F16 and BF16 are served");
  }
  FileTensor out{};
  out.name = from.name;
  out.type = dtype->type;
  out.num_elements = from.num_elements;
  out.data = from.data;
  out.dims = {1, 1, 1, 1};
  out.num_dims = static_cast<int32_t>(from.shape.size());
  if (from.shape.empty() || from.shape.size() > out.dims.size() ||
      from.num_elements == 0) {
    return InvalidArgument(name + " has " + std::to_string(from.shape.size()) +
                           " dimensions and " +
                           std::to_string(from.num_elements) +
                           " values; 1 to 4 dimensions are allowed");
  }
  std::copy(from.shape.rbegin(), from.shape.rend(), out.dims.begin());
  const int64_t value_bytes = InfoOf(out.type).block_bytes;
  out.row_bytes = out.dims[0] * value_bytes;
  const auto address = reinterpret_cast<uintptr_t>(from.data.data());
  if (address % static_cast<uintptr_t>(value_bytes) != 0) {
    return Unimplemented(name +
                         " is not aligned to its type; save the file again "
                         "with the safetensors package");
  }
  return out;
}

}  // namespace

StatusOr<std::unique_ptr<const ModelSource>> HfSource::Open(
    const std::string& folder) {
  const std::string config_path = In(folder, "config.json");
  if (!Exists(config_path)) {
    return NotFound("the folder '" + folder +
                    "' has no config.json; expected a Hugging Face folder "
                    "with safetensors, or a GGUF file");
  }
  ASSIGN_OR_RETURN(const Json json, ReadJson(config_path));
  StatusOr<HfConfig> config = ReadHfConfig(json);
  if (!config.ok()) {
    return config.status().Prefixed("'" + config_path + "'");
  }
  std::unique_ptr<HfSource> out(
      new HfSource(folder, std::move(config).value()));
  for (const auto& [key, value] : out->config_.values) {
    out->AddValue(key, value);
  }
  RETURN_IF_ERROR(out->OpenWeights());
  RETURN_IF_ERROR(out->AddTensors());
  return std::unique_ptr<const ModelSource>(std::move(out));
}

Status HfSource::OpenWeights() {
  std::set<std::string> names = {kSingleFile};
  const std::string index_path = In(folder_, kIndexFile);
  if (!Exists(In(folder_, kSingleFile))) {
    if (!Exists(index_path)) {
      return NotFound("the folder '" + folder_ + "' has neither " +
                      kSingleFile + " nor " + kIndexFile +
                      "; weights in other formats (pytorch_model.bin) must be "
                      "converted to safetensors first");
    }
    ASSIGN_OR_RETURN(names, FilesOfIndex(index_path));
  }
  files_.reserve(names.size());
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(SafetensorsFile file,
                     SafetensorsFile::Open(In(folder_, name)));
    files_.push_back(std::move(file));
  }
  return OkStatus();
}

std::string HfSource::NestedName(std::string name) const {
  const HfNested* nested = config_.nested;
  if (nested != nullptr && name.starts_with(nested->instead)) {
    name.replace(0, nested->instead.size(), nested->before);
  }
  return name;
}

bool HfSource::TakePlainName(std::string& name) const {
  const HfNested* nested = config_.nested;
  if (nested == nullptr) return true;
  for (const std::string_view other : nested->others) {
    if (name.starts_with(other)) return false;
  }
  if (name.starts_with(nested->before)) {
    name.replace(0, nested->before.size(), nested->instead);
  }
  return true;
}

Status HfSource::AddTensors() {
  std::set<std::string> seen;
  HfExperts experts(config_.architecture);
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      std::string plain = tensor.name;
      if (!TakePlainName(plain) || IsIdleHfTensor(plain)) continue;
      if (HasExpertBlocks(config_.architecture) &&
          experts.Take(plain, tensor)) {
        continue;
      }
      const std::string name = NameOfHfTensor(plain, config_.architecture);
      if (name.empty()) {
        return Unimplemented("tensor '" + tensor.name +
                             "' belongs to no family that is served; the "
                             "folder says it is '" +
                             config_.architecture + "'");
      }
      if (!seen.insert(name).second) {
        return InvalidArgument("tensor '" + tensor.name +
                               "' is in two files of the folder");
      }
      // A head beside a tied embedding is a copy of it.
      if (name == "output.weight" && config_.tied_output.value_or(false)) {
        continue;
      }
      ASSIGN_OR_RETURN(const FileTensor mapped, TensorOf(tensor));
      const bool turn = IsTransposed(config_.architecture) &&
                        name.starts_with("blk.") && mapped.num_dims == 2;
      const bool by_head = HasQkvByHead(config_.architecture) &&
                           name.find(".attn_qkv.") != std::string::npos;
      if (by_head) {
        ASSIGN_OR_RETURN(const FileTensor sorted, QkvTogether(mapped));
        AddTensor(name, sorted);
        continue;
      }
      AddTensor(name, turn ? Transposed(mapped) : mapped);
    }
  }
  RETURN_IF_ERROR(experts.Finish(
      transposed_, [&](const std::string& name, const FileTensor& tensor) {
        AddTensor(name, tensor);
      }));
  if (config_.tied_output == false && config_.has_head &&
      !seen.contains("output.weight")) {
    return InvalidArgument(
        "the folder has no tensor 'lm_head.weight', but "
        "tie_word_embeddings is false");
  }
  for (const auto& [name, values] : config_.rope_factors) {
    FileTensor factors{};
    factors.name = "rope_scaling";
    factors.type = GgmlType::kF32;
    factors.num_dims = 1;
    factors.num_elements = static_cast<int64_t>(values.size());
    factors.dims = {factors.num_elements, 1, 1, 1};
    factors.data = std::as_bytes(std::span(values));
    factors.row_bytes = static_cast<int64_t>(factors.data.size());
    AddTensor(name, factors);
  }
  return OkStatus();
}

StatusOr<FileTensor> HfSource::QkvTogether(const FileTensor& tensor) {
  ASSIGN_OR_RETURN(const int64_t heads, Int("attention.head_count"));
  const int64_t rows = tensor.dims[tensor.num_dims - 1];
  if (heads < 1 || tensor.num_dims > 2 || rows % (3 * heads) != 0) {
    return InvalidArgument("tensor '" + std::string(tensor.name) + "' has " +
                           std::to_string(rows) +
                           " rows, which are not q, k and v of " +
                           std::to_string(heads) + " heads");
  }
  const size_t part = tensor.data.size() / static_cast<size_t>(3 * heads);
  std::vector<std::byte>& data = transposed_.emplace_back(tensor.data.size());
  for (size_t which = 0; which < 3; ++which) {
    for (size_t head = 0; head < static_cast<size_t>(heads); ++head) {
      std::memcpy(
          data.data() + (which * static_cast<size_t>(heads) + head) * part,
          tensor.data.data() + (head * 3 + which) * part, part);
    }
  }
  FileTensor out = tensor;
  out.data = data;
  return out;
}

FileTensor HfSource::Transposed(const FileTensor& tensor) {
  const int64_t columns = tensor.dims[0];
  const int64_t rows = tensor.dims[1];
  const int64_t bytes = InfoOf(tensor.type).block_bytes;
  std::vector<std::byte>& data = transposed_.emplace_back(tensor.data.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      std::memcpy(data.data() + (column * rows + row) * bytes,
                  tensor.data.data() + (row * columns + column) * bytes,
                  static_cast<size_t>(bytes));
    }
  }
  FileTensor out = tensor;
  out.dims = {rows, columns, 1, 1};
  out.row_bytes = rows * bytes;
  out.data = data;
  return out;
}

std::string HfSource::format() const {
  return "Hugging Face folder, " + std::to_string(files_.size()) +
         (files_.size() == 1 ? " file" : " files") + " of safetensors";
}

int64_t HfSource::file_bytes() const {
  int64_t sum = 0;
  for (const SafetensorsFile& file : files_) sum += file.file_bytes();
  return sum;
}

std::string HfSource::name() const {
  const std::filesystem::path path =
      std::filesystem::path(folder_).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

void HfSource::WillRead() const {
  for (const SafetensorsFile& file : files_) file.mapping()->WillRead();
}

void HfSource::DropPages() const {
  for (const SafetensorsFile& file : files_) {
    file.mapping()->DropPages(file.mapping()->bytes());
  }
}

StatusOr<Vocabulary> HfSource::ReadTokenizer() const {
  const std::string path = In(folder_, "tokenizer.json");
  const std::string tekken = In(folder_, "tekken.json");
  const std::string pieces = In(folder_, "tokenizer.model");
  for (const auto& [other, read] : {std::pair(tekken, &ReadTekken),
                                    std::pair(pieces, &ReadSentenceModel)}) {
    if (Exists(path) || !Exists(other)) continue;
    ASSIGN_OR_RETURN(const std::string text,
                     ReadText(other, kMaxTokenizerBytes));
    StatusOr<Vocabulary> words = (*read)(text);
    if (!words.ok()) return words.status().Prefixed("'" + other + "'");
    return words;
  }
  if (!Exists(path)) {
    return NotFound("the folder '" + folder_ +
                    "' has no tokenizer.json, tekken.json or tokenizer.model; "
                    "let transformers write one: "
                    "AutoTokenizer.from_pretrained(...).save_pretrained(...)");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMaxTokenizerBytes));
  ASSIGN_OR_RETURN(const Json config,
                   ReadJsonIfThere(In(folder_, "tokenizer_config.json")));
  ASSIGN_OR_RETURN(const Json specials,
                   ReadJsonIfThere(In(folder_, "special_tokens_map.json")));
  HfTokenTexts texts{.bos = TokenText(config, "bos_token"),
                     .eos = TokenText(config, "eos_token")};
  if (texts.bos.empty()) texts.bos = TokenText(specials, "bos_token");
  if (texts.eos.empty()) texts.eos = TokenText(specials, "eos_token");
  // What stands around texts that become vectors is not a prompt's business.
  texts.template_apart = MakesVectors();
  StatusOr<Vocabulary> read = ReadHfTokenizer(text, texts);
  if (!read.ok()) return read.status().Prefixed("'" + path + "'");
  return read;
}

StatusOr<Vocabulary> HfSource::ReadVocabulary() const {
  ASSIGN_OR_RETURN(Vocabulary read, ReadTokenizer());

  ASSIGN_OR_RETURN(const Json generation,
                   ReadJsonIfThere(In(folder_, "generation_config.json")));
  ASSIGN_OR_RETURN(std::vector<int64_t> ends,
                   ReadHfIds(generation, "eos_token_id"));
  ends.insert(ends.end(), config_.eos_ids.begin(), config_.eos_ids.end());
  for (const int64_t id : ends) {
    // Ids of padding rows behind the vocabulary exist; none is ever text.
    if (id < static_cast<int64_t>(read.tokens.size())) {
      read.eog_ids.push_back(static_cast<int32_t>(id));
    }
  }
  AddKnownEnds(read);
  return read;
}

StatusOr<std::string> HfSource::ChatTemplateText() const {
  const std::string own_file = In(folder_, "chat_template.jinja");
  if (Exists(own_file)) return ReadText(own_file, kMaxJsonBytes);
  for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
    ASSIGN_OR_RETURN(const Json config, ReadJsonIfThere(In(folder_, file)));
    const auto it = config.find("chat_template");
    if (it == config.end()) continue;
    if (it->is_string()) return it->get<std::string>();
    if (!it->is_array()) continue;
    // Several, by name; "default" is the one for plain conversations. Without
    // it transformers asks its caller which one is meant.
    std::string names;
    for (const Json& named : *it) {
      const std::string name = TokenText(named, "name");
      if (name == "default") return TokenText(named, "template");
      if (names.size() > kMaxNamesBytes) continue;  // enough to tell
      names += (names.empty() ? "'" : ", '") + Shortened(name, 64) + "'";
    }
    if (names.empty()) continue;
    return InvalidArgument(
        "'" + In(folder_, file) + "' has the chat templates " + names +
        " and none named 'default'; give the one to use with chat_template");
  }
  return std::string();
}

bool HfSource::MakesVectors() const {
  return !config_.has_head || Exists(In(folder_, "modules.json"));
}

// The last row where no file says another.
Status HfSource::ReadPooling(VectorForm& form) const {
  const std::string path = In(folder_, "1_Pooling/config.json");
  form.pooling_type = 3;
  if (Exists(path)) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMaxJsonBytes));
    const StatusOr<std::string> mode = ReadPoolingMode(text);
    if (!mode.ok()) return mode.status().Prefixed("'" + path + "'");
    if (*mode == "max") {
      return Unimplemented("'" + path +
                           "' chooses max, which no key of a GGUF can say");
    }
    form.pooling_type = *mode == "mean" ? 1 : *mode == "cls" ? 2 : 3;
  }
  const std::string modules = In(folder_, "modules.json");
  if (!Exists(modules)) return OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadText(modules, kMaxJsonBytes));
  const StatusOr<bool> normalizes = ReadNormalizes(text);
  if (!normalizes.ok())
    return normalizes.status().Prefixed("'" + modules + "'");
  if (*normalizes) return OkStatus();
  return Unimplemented("'" + modules +
                       "' does not normalise vectors, which no key of a GGUF "
                       "can say");
}

StatusOr<std::optional<VectorForm>> HfSource::ReadVectorForm() const {
  if (!MakesVectors()) return std::optional<VectorForm>();
  VectorForm form;
  RETURN_IF_ERROR(ReadPooling(form));
  const std::string path = In(folder_, "tokenizer.json");
  ASSIGN_OR_RETURN(const std::string json, ReadText(path, kMaxTokenizerBytes));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadTokenizer());
  ASSIGN_OR_RETURN(const auto tokenizer,
                   Tokenizer::Create(std::move(vocabulary)));
  const StatusOr<PostProcessor> around =
      PostProcessor::FromJson(json, *tokenizer);
  if (!around.ok()) return around.status().Prefixed("'" + path + "'");
  constexpr int32_t kText = -1;  // in the place of a text
  const std::vector<int32_t> ids =
      around->Of(std::array{kText}, around->NumAdded(false) + 1).ids;
  const auto text = std::find(ids.begin(), ids.end(), kText);
  if (text - ids.begin() > 1 || ids.end() - text > 2) {
    return Unimplemented(
        "'" + path + "' puts " + std::to_string(text - ids.begin()) +
        " tokens before a text and " + std::to_string(ids.end() - text - 1) +
        " behind it; keys of a GGUF can say one each");
  }
  if (text != ids.begin()) form.bos_id = ids.front();
  if (ids.back() != kText) form.eos_id = ids.back();
  return std::optional<VectorForm>(form);
}

StatusOr<GenerationDefaults> HfSource::ReadGenerationDefaults() const {
  const std::string path = In(folder_, "generation_config.json");
  if (!Exists(path)) return GenerationDefaults{};
  ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMaxJsonBytes));
  return ParseGenerationConfig(text, "'" + path + "'");
}

}  // namespace millrace::models
