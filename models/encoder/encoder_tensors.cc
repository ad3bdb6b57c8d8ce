#include "models/encoder/encoder_tensors.h"

#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "models/files/safetensors.h"
#include "models/files/safetensors_index.h"
#include "models/tensor/quant.h"

namespace millrace::models::encoder {
namespace {

namespace fs = std::filesystem;

Status Missing(const std::string& name) {
  return InvalidArgument("the tensor '" + name + "' is missing");
}

// ---- folders ----

class FolderTensors final : public EncoderTensors {
 public:
  Status Add(const fs::path& path) {
    ASSIGN_OR_RETURN(SafetensorsFile opened,
                     SafetensorsFile::Open(path.string()));
    const auto file =
        std::make_shared<const SafetensorsFile>(std::move(opened));
    for (const SafetensorsTensor& tensor : file->tensors()) {
      tensors_[tensor.name] = {&tensor, file};
    }
    return OkStatus();
  }

  bool Has(const std::string& name) const override {
    return tensors_.contains(name);
  }
  int64_t Rows(const std::string& name) const override {
    const auto it = tensors_.find(name);
    return it == tensors_.end() || it->second.tensor->shape.empty()
               ? 0
               : it->second.tensor->shape[0];
  }
  StatusOr<EncoderTensor> Read(const std::string& name) const override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return Missing(name);
    const SafetensorsTensor& tensor = *it->second.tensor;
    EncoderTensor out;
    if (tensor.dtype == "F32") {
      out.dtype = DType::kF32;
    } else if (tensor.dtype == "F16") {
      out.dtype = DType::kF16;
    } else if (tensor.dtype == "BF16") {
      out.dtype = DType::kBF16;
    } else {
      return Unimplemented("tensor '" + name + "' has the type " +
                           std::string(tensor.dtype) +
                           "; F32, F16 and BF16 are supported");
    }
    out.shape = tensor.shape;
    out.bytes = tensor.data;
    out.keep = it->second.file;
    return out;
  }

 private:
  struct Place {
    const SafetensorsTensor* tensor;
    std::shared_ptr<const SafetensorsFile> file;
  };
  std::map<std::string, Place> tensors_;
};

// ---- GGUF ----

using Name = GgufName;

constexpr Name kBertNames[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight"},
    {"embeddings.position_embeddings.weight", "position_embd.weight"},
    {"embeddings.token_type_embeddings.weight", "token_types.weight"},
    {"embeddings.LayerNorm.weight", "token_embd_norm.weight"},
    {"embeddings.LayerNorm.bias", "token_embd_norm.bias"},
    {"encoder.layer.#.attention.self.query", "blk.#.attn_q"},
    {"encoder.layer.#.attention.self.key", "blk.#.attn_k"},
    {"encoder.layer.#.attention.self.value", "blk.#.attn_v"},
    {"encoder.layer.#.attention.output.dense", "blk.#.attn_output"},
    {"encoder.layer.#.attention.output.LayerNorm", "blk.#.attn_output_norm"},
    {"encoder.layer.#.intermediate.dense", "blk.#.ffn_up"},
    {"encoder.layer.#.output.dense", "blk.#.ffn_down"},
    {"encoder.layer.#.output.LayerNorm", "blk.#.layer_output_norm"},
    {"pooler.dense", "cls"},
    {"classifier", "cls.output"},
};
constexpr Name kNomicNames[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight"},
    {"embeddings.token_type_embeddings.weight", "token_types.weight"},
    {"emb_ln.weight", "token_embd_norm.weight"},
    {"emb_ln.bias", "token_embd_norm.bias"},
    {"encoder.layers.#.attn.Wqkv", "blk.#.attn_qkv"},
    {"encoder.layers.#.attn.out_proj", "blk.#.attn_output"},
    {"encoder.layers.#.norm1", "blk.#.attn_output_norm"},
    {"encoder.layers.#.mlp.fc11", "blk.#.ffn_up"},
    {"encoder.layers.#.mlp.fc12", "blk.#.ffn_gate"},
    {"encoder.layers.#.mlp.fc2", "blk.#.ffn_down"},
    {"encoder.layers.#.norm2", "blk.#.layer_output_norm"},
};
constexpr Name kModernNames[] = {
    {"embeddings.tok_embeddings.weight", "token_embd.weight"},
    {"embeddings.norm.weight", "token_embd_norm.weight"},
    {"layers.#.attn_norm", "blk.#.attn_norm"},
    {"layers.#.attn.Wqkv", "blk.#.attn_qkv"},
    {"layers.#.attn.Wo", "blk.#.attn_output"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.Wi", "blk.#.ffn_up"},
    {"layers.#.mlp.Wo", "blk.#.ffn_down"},
    {"final_norm.weight", "output_norm.weight"},
};

std::span<const Name> NamesOf(Family family) {
  if (family == Family::kNomic) return kNomicNames;
  if (family == Family::kModernBert) return kModernNames;
  return kBertNames;
}

// "encoder.layer.12.output.dense.bias" by "…#.output.dense" → "blk.12…bias".
std::optional<std::string> Mapped(const std::string& name, const Name& by) {
  const size_t hash = by.folder.find('#');
  if (hash == std::string_view::npos) {
    if (!name.starts_with(by.folder)) return {};
    const std::string rest = name.substr(by.folder.size());
    if (!rest.empty() && rest != ".weight" && rest != ".bias") return {};
    return std::string(by.gguf) + rest;
  }
  if (!name.starts_with(by.folder.substr(0, hash))) return {};
  const size_t dot = name.find('.', hash);
  const std::string_view behind = by.folder.substr(hash + 1);
  if (dot == std::string::npos ||
      !std::string_view(name).substr(dot).starts_with(behind)) {
    return {};
  }
  const std::string rest = name.substr(dot + behind.size());
  if (rest != ".weight" && rest != ".bias") return {};
  std::string out(by.gguf);
  out.replace(out.find('#'), 1, name.substr(hash, dot - hash));
  return out + rest;
}

class GgufTensors final : public EncoderTensors {
 public:
  GgufTensors(std::shared_ptr<const GgufFile> file, std::span<const Name> names)
      : file_(std::move(file)), names_(names) {}

  bool Has(const std::string& name) const override {
    return Find(name) != nullptr;
  }
  int64_t Rows(const std::string& name) const override {
    const FileTensor* tensor = Find(name);
    return tensor == nullptr ? 0 : tensor->dims[tensor->num_dims - 1];
  }
  std::string Spelt(const std::string& name) const override {
    for (const Name& by : names_) {
      if (const auto mapped = Mapped(name, by)) return *mapped;
    }
    return name;
  }
  StatusOr<EncoderTensor> Read(const std::string& name) const override {
    const FileTensor* tensor = Find(name);
    if (tensor == nullptr) return Missing(Spelt(name));
    EncoderTensor out;
    for (int i = tensor->num_dims; i-- > 0;) {
      out.shape.push_back(tensor->dims[static_cast<size_t>(i)]);
    }
    const GgmlTypeInfo& info = InfoOf(tensor->type);
    if (!info.served) {
      return Unimplemented("tensor '" + std::string(tensor->name) +
                           "' has weights of type " + std::string(info.name) +
                           "; these are served: " + ServedTypeNames());
    }
    out.keep = file_;
    out.bytes = tensor->data;
    if (tensor->type == GgmlType::kF16) out.dtype = DType::kF16;
    if (tensor->type == GgmlType::kBF16) out.dtype = DType::kBF16;
    if (info.block_values == 1) return out;
    const auto values = std::make_shared<std::vector<float>>(
        static_cast<size_t>(tensor->num_elements));
    const int64_t k = tensor->dims[0];
    for (int64_t i = 0; i < tensor->num_elements / k; ++i) {
      CHECK(DequantizeRow(tensor->type, tensor->row(i), k,
                          values->data() + i * k),
            "weights have a served type");
    }
    out.bytes = std::as_bytes(std::span(*values));
    out.keep = values;
    return out;
  }

 private:
  const FileTensor* Find(const std::string& name) const {
    return file_->FindTensor(Spelt(name));
  }

  const std::shared_ptr<const GgufFile> file_;
  const std::span<const Name> names_;
};

}  // namespace

StatusOr<std::unique_ptr<const EncoderTensors>> OpenFolderTensors(
    const std::string& folder) {
  auto out = std::make_unique<FolderTensors>();
  std::error_code error;
  const fs::path single = fs::path(folder) / "model.safetensors";
  const fs::path index = fs::path(folder) / "model.safetensors.index.json";
  std::set<std::string> files = {"model.safetensors"};
  if (!fs::exists(single, error) && fs::exists(index, error)) {
    ASSIGN_OR_RETURN(files, FilesOfIndex(index.string()));
  }
  for (const std::string& file : files) {
    RETURN_IF_ERROR(out->Add(fs::path(folder) / file));
  }
  return std::unique_ptr<const EncoderTensors>(std::move(out));
}

std::unique_ptr<const EncoderTensors> MakeGgufTensors(
    std::shared_ptr<const GgufFile> file, Family family) {
  return MakeGgufTensors(std::move(file), NamesOf(family));
}

std::unique_ptr<const EncoderTensors> MakeGgufTensors(
    std::shared_ptr<const GgufFile> file, std::span<const GgufName> names) {
  return std::make_unique<GgufTensors>(std::move(file), names);
}

}  // namespace millrace::models::encoder
