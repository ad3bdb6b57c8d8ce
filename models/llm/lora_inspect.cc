#include "models/llm/lora_inspect.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "config/base/json.h"
#include "config/base/read_file.h"
#include "config/base/utf8.h"
#include "models/files/gguf.h"
#include "models/files/safetensors.h"
#include "models/llm/hf_json.h"
#include "models/llm/lora_config.h"

namespace millrace::models {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = 1 << 20;

// "self_attn.q_proj" of "model.layers.3.self_attn.q_proj": what stands behind
// the first part that is a number; all of it where none is.
std::string_view BehindLayer(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    if (is_number && end + 1 < name.size()) return name.substr(end + 1);
    begin = end + 1;
  }
  return name;
}

bool CutSuffix(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  return true;
}

// `rank`: of lora_A, the pair's; 0: it is lora_B.
void Count(std::string_view matrix, int64_t rank, int64_t parameters,
           LoraDescription& out) {
  LoraDescription::Target& target =
      out.targets[std::string(BehindLayer(matrix))];
  target.parameters += parameters;
  if (rank == 0) return;
  const bool first = target.matrices++ == 0;
  target.least_rank = first ? rank : std::min(target.least_rank, rank);
  target.greatest_rank = std::max(target.greatest_rank, rank);
}

// A tensor that is neither: why it is not served, the first of them.
void Odd(std::string_view name, LoraDescription& out) {
  if (!out.served.ok()) return;
  out.served = Unimplemented("tensor '" + Shortened(name, 200) +
                             "' is not lora_A or lora_B of a linear layer; "
                             "only those are served");
}

StatusOr<LoraDescription> DescribePeft(const fs::path& folder) {
  LoraDescription out;
  out.format = "PEFT folder";
  ASSIGN_OR_RETURN(
      const std::string text,
      ReadFileOf("adapter", (folder / "adapter_config.json").string(),
                 kMaxConfigBytes));
  const StatusOr<LoraScale> scale = ParsePeftConfig(text);
  out.served = scale.status();
  ASSIGN_OR_RETURN(const nlohmann::ordered_json config, ParseJson(text));
  if (!config.is_object()) return out;
  out.base = TextOf(config, "base_model_name_or_path");
  out.alpha = NumberOf(config, "lora_alpha").value_or(0);
  const auto* root = Find(config, "use_rslora");
  out.root = root != nullptr && *root == true;
  ASSIGN_OR_RETURN(
      const SafetensorsFile file,
      SafetensorsFile::Open((folder / "adapter_model.safetensors").string()));
  for (const SafetensorsTensor& tensor : file.tensors()) {
    out.file_bytes += static_cast<int64_t>(tensor.data.size());
    std::string_view matrix = tensor.name;
    const bool is_a = CutSuffix(matrix, ".lora_A.weight");
    const bool is_pair = is_a || CutSuffix(matrix, ".lora_B.weight");
    if (!is_pair || tensor.shape.size() != 2) {
      Odd(tensor.name, out);
      continue;
    }
    Count(matrix, is_a ? tensor.shape[0] : 0, tensor.shape[0] * tensor.shape[1],
          out);
  }
  return out;
}

StatusOr<LoraDescription> DescribeGguf(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  LoraDescription out;
  out.format = "GGUF";
  ASSIGN_OR_RETURN(const std::string_view family,
                   file.String("general.architecture", ""));
  out.family = family;
  ASSIGN_OR_RETURN(const std::string_view base,
                   file.String("general.base_model.0.name", ""));
  out.base = base;
  ASSIGN_OR_RETURN(out.alpha, file.Float("adapter.lora.alpha", 0));
  ASSIGN_OR_RETURN(const std::string_view kind,
                   file.String("adapter.type", "lora"));
  if (kind != "lora") {
    out.served =
        Unimplemented("the adapter is of type '" + Shortened(kind, 80) +
                      "' (adapter.type); 'lora' is served");
  }
  for (const GgufTensor& tensor : file.tensors()) {
    out.file_bytes += static_cast<int64_t>(tensor.data.size());
    std::string_view matrix = tensor.name;
    const bool is_a = CutSuffix(matrix, ".lora_a");
    const bool is_pair = is_a || CutSuffix(matrix, ".lora_b");
    if (!is_pair || tensor.num_dims != 2) {
      Odd(tensor.name, out);
      continue;
    }
    CutSuffix(matrix, ".weight");
    Count(matrix, is_a ? tensor.dims[1] : 0, tensor.dims[0] * tensor.dims[1],
          out);
  }
  return out;
}

}  // namespace

bool IsLoraFile(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return fs::exists(fs::path(path) / "adapter_config.json", error) &&
           !fs::exists(fs::path(path) / "config.json", error);
  }
  const auto file = GgufFile::Open(path);
  if (!file.ok()) return false;
  const auto type = file->String("general.type", "model");
  return type.ok() && *type == "adapter";
}

StatusOr<LoraDescription> DescribeLora(const std::string& path) {
  std::error_code error;
  StatusOr<LoraDescription> out =
      fs::is_directory(path, error) ? DescribePeft(path) : DescribeGguf(path);
  if (!out.ok()) return out.status().Prefixed("'" + path + "'");
  if (out->targets.empty() && out->served.ok()) {
    out->served = InvalidArgument("the adapter has no tensors");
  }
  return out;
}

}  // namespace millrace::models
