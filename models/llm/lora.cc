// Tensors have the names of the matrices that they change, in the words of the
// file's format; from the model's own names on there is one way.
#include "models/llm/lora.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "config/base/utf8.h"
#include "models/files/gguf.h"
#include "models/files/safetensors.h"
#include "models/llm/hf_names.h"
#include "models/llm/layer_name.h"
#include "models/llm/lora_config.h"
#include "models/llm/lora_packing.h"
#include "models/llm/lora_store.h"
#include "models/tensor/quant.h"

namespace millrace::models {
namespace {

uint32_t NextNumber() {
  static std::atomic<uint32_t> last{0};  // relaxed: it only has to be unique
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// One of the thin matrices, rows of floats.
struct Thin {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;
};
// Those of one matrix of the model, by the name it has in GGUF files.
struct Pair {
  std::optional<Thin> a;
  std::optional<Thin> b;
};
using Pairs = std::map<std::string, Pair>;

std::string Quoted(std::string_view text) {
  return "'" + Shortened(text, 200) + "'";
}

// `dims`: the first is contiguous.
StatusOr<Thin> ReadThin(const std::string& name, GgmlType type,
                        std::span<const int64_t> dims,
                        std::span<const std::byte> data) {
  const GgmlTypeInfo& info = InfoOf(type);
  if (!info.served || info.block_values != 1) {
    return Unimplemented("tensor " + Quoted(name) + " is of type " +
                         std::string(info.name) +
                         "; adapters are served in F32, F16 and BF16");
  }
  if (dims.size() != 2 || dims[0] < 1 || dims[1] < 1) {
    return InvalidArgument("tensor " + Quoted(name) + " is no matrix");
  }
  Thin thin = {.rows = dims[1], .columns = dims[0], .values = {}};
  thin.values.resize(static_cast<size_t>(thin.rows * thin.columns));
  const int64_t row_bytes = thin.columns * info.block_bytes;
  if (static_cast<int64_t>(data.size()) != thin.rows * row_bytes) {
    return InvalidArgument(
        "tensor " + Quoted(name) + " has " + std::to_string(data.size()) +
        " bytes, " + std::to_string(thin.rows * row_bytes) + " are expected");
  }
  for (int64_t row = 0; row < thin.rows; ++row) {
    DequantizeRow(type, data.data() + row * row_bytes, thin.columns,
                  thin.values.data() + row * thin.columns);
  }
  for (const float x : thin.values) {
    if (!std::isfinite(x)) {
      return InvalidArgument("tensor " + Quoted(name) +
                             " holds a value that is no number");
    }
  }
  return thin;
}

Status Add(std::optional<Thin>& place, const std::string& name, Thin thin) {
  if (place) {
    return InvalidArgument("the matrix of tensor " + Quoted(name) +
                           " is changed twice");
  }
  place = std::move(thin);
  return OkStatus();
}

// ---- files ----

StatusOr<Pairs> ReadPeft(const std::filesystem::path& folder,
                         const LoraBase& base) {
  ASSIGN_OR_RETURN(
      const SafetensorsFile file,
      SafetensorsFile::Open((folder / "adapter_model.safetensors").string()));
  Pairs pairs;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    constexpr std::string_view kPrefix = "base_model.model.";
    std::string_view rest = tensor.name;
    if (rest.starts_with(kPrefix)) rest.remove_prefix(kPrefix.size());
    const bool is_a = rest.ends_with(".lora_A.weight");
    if (!is_a && !rest.ends_with(".lora_B.weight")) {
      return Unimplemented("tensor " + Quoted(tensor.name) +
                           " is not lora_A or lora_B of a linear layer; only "
                           "those are served");
    }
    rest.remove_suffix(std::string_view(".lora_A.weight").size());
    const std::string name =
        NameOfHfTensor(std::string(rest) + ".weight", base.config.architecture);
    if (name.empty()) {
      return InvalidArgument("tensor " + Quoted(tensor.name) +
                             " changes a matrix that a model of the family '" +
                             base.config.architecture + "' does not have");
    }
    if (HasQkvByHead(base.config.architecture) &&
        name.ends_with(".attn_qkv.weight")) {
      return Unimplemented("tensor " + Quoted(tensor.name) +
                           " changes q, k and v of a model of the family '" +
                           base.config.architecture +
                           "', which is not served; merge the adapter into "
                           "the model's weights");
    }
    const std::optional<GgmlType> type =
        tensor.dtype == "F32"    ? std::optional(GgmlType::kF32)
        : tensor.dtype == "F16"  ? std::optional(GgmlType::kF16)
        : tensor.dtype == "BF16" ? std::optional(GgmlType::kBF16)
                                 : std::nullopt;
    if (!type) {
      return Unimplemented("tensor " + Quoted(tensor.name) + " is of type " +
                           std::string(tensor.dtype) +
                           "; adapters are served in F32, F16 and BF16");
    }
    const std::vector<int64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
    ASSIGN_OR_RETURN(Thin thin,
                     ReadThin(tensor.name, *type, dims, tensor.data));
    Pair& pair = pairs[name];
    RETURN_IF_ERROR(Add(is_a ? pair.a : pair.b, tensor.name, std::move(thin)));
  }
  return pairs;
}

StatusOr<Pairs> ReadGguf(const GgufFile& file) {
  Pairs pairs;
  for (const GgufTensor& tensor : file.tensors()) {
    std::string_view rest = tensor.name;
    const bool is_a = rest.ends_with(".lora_a");
    if (!is_a && !rest.ends_with(".lora_b")) {
      return Unimplemented("tensor " + Quoted(tensor.name) +
                           " is neither lora_a nor lora_b of a matrix");
    }
    rest.remove_suffix(std::string_view(".lora_a").size());
    ASSIGN_OR_RETURN(
        Thin thin,
        ReadThin(
            std::string(tensor.name), tensor.type,
            std::span(tensor.dims).first(static_cast<size_t>(tensor.num_dims)),
            tensor.data));
    Pair& pair = pairs[std::string(rest)];
    RETURN_IF_ERROR(
        Add(is_a ? pair.a : pair.b, std::string(tensor.name), std::move(thin)));
  }
  return pairs;
}

// ---- fitting ----

// Where rows of a matrix of the file go.
struct Part {
  LoraTarget target;
  int64_t first_row;
  int64_t num_rows;
};
struct Place {
  int64_t inputs = 0;
  std::vector<Part> parts;  // empty: the matrix cannot be changed
};

Place PlaceOf(const ModelConfig& config, int32_t layer,
              std::string_view matrix) {
  using enum LoraTarget;
  const LayerSpec& spec = config.specs[static_cast<size_t>(layer)];
  const int64_t d = config.hidden;
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  const int64_t ffn = config.ffn;
  if (spec.fused_qkv && matrix == "attn_qkv.weight") {
    return {d, {{kQ, 0, q}, {kK, q, kv}, {kV, q + kv, kv}}};
  }
  if (!spec.fused_qkv && matrix == "attn_q.weight") return {d, {{kQ, 0, q}}};
  if (!spec.fused_qkv && matrix == "attn_k.weight") return {d, {{kK, 0, kv}}};
  if (!spec.fused_qkv && matrix == "attn_v.weight") return {d, {{kV, 0, kv}}};
  if (matrix == "attn_output.weight") return {q, {{kOutput, 0, d}}};
  if (spec.experts) return {};
  if (matrix == "ffn_down.weight") return {ffn, {{kDown, 0, d}}};
  if (spec.fused_gate_up && matrix == "ffn_up.weight") {
    return {d, {{kGate, 0, ffn}, {kUp, ffn, ffn}}};
  }
  if (matrix == "ffn_up.weight") return {d, {{kUp, 0, ffn}}};
  if (spec.gated && !spec.fused_gate_up && matrix == "ffn_gate.weight") {
    return {d, {{kGate, 0, ffn}}};
  }
  return {};
}

std::string Shape(const Thin& thin) {
  return std::to_string(thin.rows) + " x " + std::to_string(thin.columns);
}

// Rows of q and k as GGUF files of some families have them
// (ModelConfig::qk_rows_moved): the two of a pair that is rotated are
// neighbours.
int64_t Interleaved(int64_t row, int64_t head_dim) {
  const int64_t head = row / head_dim;
  const int64_t within = row % head_dim;
  const int64_t half = head_dim / 2;
  return head * head_dim + 2 * (within % half) + within / half;
}

class Fitter {
 public:
  // `interleave`: the file has rows of q and k in another order than the base.
  Fitter(const ModelConfig& config, LoraScale scale, bool interleave)
      : config_(config), scale_(scale), interleave_(interleave) {}

  Status Fit(const std::string& name, const Pair& pair,
             LoraFloatLayers& layers) const {
    if (!pair.a || !pair.b) {
      return InvalidArgument("the matrix " + Quoted(name) + " has lora_" +
                             (pair.a ? "A but no lora_B" : "B but no lora_A"));
    }
    const auto [layer, matrix] =
        CutLayer(name, "blk.").value_or(LayerName{-1, name});
    if (layer >= config_.layers) {
      return InvalidArgument("the matrix " + Quoted(name) +
                             " is of a layer that the base model, which has " +
                             std::to_string(config_.layers) +
                             " layers, does not have");
    }
    const Place place = layer < 0 ? Place{} : PlaceOf(config_, layer, matrix);
    if (place.parts.empty()) {
      return Unimplemented(
          "the adapter changes " + Quoted(name) +
          "; adapters of the matrices of attention and of dense feed-forwards "
          "are served, others can be merged into the model's weights");
    }
    const int64_t outputs =
        place.parts.back().first_row + place.parts.back().num_rows;
    if (pair.a->columns != place.inputs || pair.b->rows != outputs) {
      return InvalidArgument(
          "lora_A and lora_B of " + Quoted(name) + " are " + Shape(*pair.a) +
          " and " + Shape(*pair.b) + " but the base model's matrix is " +
          std::to_string(outputs) + " x " + std::to_string(place.inputs) +
          "; the adapter was made for another model");
    }
    const int64_t rank = pair.a->rows;
    if (pair.b->columns != rank) {
      return InvalidArgument("lora_A of " + Quoted(name) + " has rank " +
                             std::to_string(rank) + " but lora_B has rank " +
                             std::to_string(pair.b->columns));
    }
    if (scale_.rank > 0 && rank != scale_.rank) {
      return InvalidArgument("lora_A of " + Quoted(name) + " has rank " +
                             std::to_string(rank) +
                             " but adapter_config.json says that r is " +
                             std::to_string(scale_.rank));
    }
    if (rank > kMaxLoraRank) {
      return InvalidArgument("lora_A of " + Quoted(name) + " has rank " +
                             std::to_string(rank) + " but at most " +
                             std::to_string(kMaxLoraRank) + " is served");
    }
    for (const Part& part : place.parts) {
      LoraFloats& delta =
          layers[static_cast<size_t>(layer)][static_cast<size_t>(part.target)];
      delta.rank = static_cast<int32_t>(rank);
      delta.a = pair.a->values;
      delta.b = RowsOf(*pair.b, part, scale_.Of(rank));
      if (!std::ranges::all_of(delta.b,
                               [](float x) { return std::isfinite(x); })) {
        return InvalidArgument(
            "lora_B of " + Quoted(name) + " times the adapter's scale of " +
            std::to_string(scale_.Of(rank)) +
            " is beyond f32: the adapter's lora_alpha is too large");
      }
    }
    return OkStatus();
  }

 private:
  std::vector<float> RowsOf(const Thin& b, const Part& part,
                            float scale) const {
    const bool moves = interleave_ && (part.target == LoraTarget::kQ ||
                                       part.target == LoraTarget::kK);
    std::vector<float> out(static_cast<size_t>(part.num_rows * b.columns));
    for (int64_t row = 0; row < part.num_rows; ++row) {
      const int64_t to = moves ? Interleaved(row, config_.head_dim) : row;
      const float* from = b.values.data() + (part.first_row + row) * b.columns;
      std::transform(from, from + b.columns, out.data() + to * b.columns,
                     [scale](float x) { return x * scale; });
    }
    return out;
  }

  const ModelConfig& config_;
  const LoraScale scale_;
  const bool interleave_;
};

StatusOr<std::shared_ptr<const LoraAdapter>> Load(const std::string& path,
                                                  const LoraBase& base,
                                                  std::string served_name) {
  std::error_code error;
  LoraScale scale;
  Pairs pairs;
  bool interleave = false;
  if (std::filesystem::is_directory(path, error)) {
    ASSIGN_OR_RETURN(scale, ReadPeftConfig(path));
    ASSIGN_OR_RETURN(pairs, ReadPeft(path, base));
    interleave = base.config.qk_rows_moved;
  } else if (std::filesystem::exists(path, error)) {
    ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
    ASSIGN_OR_RETURN(scale, ReadGgufScale(file, base));
    ASSIGN_OR_RETURN(pairs, ReadGguf(file));
  } else {
    return NotFound("there is no such file or folder");
  }
  if (pairs.empty()) return InvalidArgument("the adapter has no tensors");
  LoraFloatLayers layers(static_cast<size_t>(base.config.layers));
  const Fitter fitter(base.config, scale, interleave);
  for (const auto& [name, pair] : pairs) {
    RETURN_IF_ERROR(fitter.Fit(name, pair, layers));
  }
  return PackLora(layers, base.packing, std::move(served_name));
}

}  // namespace

LoraAdapter::LoraAdapter(std::vector<Layer> layers, LoraDtype dtype,
                         HugeBuffer memory, std::string name)
    : layers_(std::move(layers)),
      dtype_(dtype),
      memory_(std::make_shared<const HugeBuffer>(std::move(memory))),
      number_(NextNumber()),
      name_(std::move(name)) {}

LoraAdapter::LoraAdapter(std::vector<Layer> layers, LoraDtype dtype,
                         std::shared_ptr<const LoraOnDevice> on_device,
                         std::string name)
    : layers_(std::move(layers)),
      dtype_(dtype),
      on_device_(std::move(on_device)),
      number_(NextNumber()),
      name_(std::move(name)) {}

LoraAdapter::LoraAdapter(const LoraAdapter& other, std::vector<Layer> layers)
    : layers_(std::move(layers)),
      dtype_(other.dtype_),
      memory_(other.memory_),
      number_(NextNumber()),
      name_(other.name_) {}

std::shared_ptr<const LoraAdapter> LoraAdapter::Scaled(float factor) const {
  CHECK(on_device_ == nullptr, "a device's scales are in its own memory");
  std::vector<Layer> layers = layers_;
  for (Layer& layer : layers) {
    for (LoraDelta& delta : layer) delta.scale *= factor;
  }
  return std::shared_ptr<const LoraAdapter>(
      new LoraAdapter(*this, std::move(layers)));
}

int64_t LoraAdapter::num_bytes() const {
  return on_device_ != nullptr ? on_device_->num_bytes() : memory_->size();
}

int32_t LoraAdapter::rank() const {
  int32_t rank = 0;
  for (const Layer& layer : layers_) {
    for (const LoraDelta& delta : layer) rank = std::max(rank, delta.rank);
  }
  return rank;
}

StatusOr<std::shared_ptr<const LoraAdapter>> LoadLora(const std::string& path,
                                                      const LoraBase& base,
                                                      std::string name) {
  auto adapter = Load(path, base, std::move(name));
  if (adapter.ok() ||
      adapter.status().message().find(path) != std::string_view::npos) {
    return adapter;
  }
  return adapter.status().Prefixed("adapter '" + path + "'");
}

}  // namespace millrace::models
