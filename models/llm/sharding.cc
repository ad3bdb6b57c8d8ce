// One table says how each tensor of a layer is cut; the check, the cut and what
// `inspect` prints all follow it. Cuts copy nothing: a part of the inputs keeps
// the distance between the rows of the whole.
#include "models/llm/sharding.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

namespace millrace::models {
namespace {

constexpr int32_t kMostSize = 64;

struct LayerCut {
  std::string_view name;
  const FileTensor* LayerTensors::*tensor;
  Cut cut;
  CutUnit unit;
};
constexpr LayerCut kLayerCuts[] = {
    {"attn_norm.weight", &LayerTensors::attn_norm, Cut::kWhole, CutUnit::kNone},
    {"attn_norm.bias", &LayerTensors::attn_norm_bias, Cut::kWhole,
     CutUnit::kNone},
    {"attn_q.weight", &LayerTensors::attn_q, Cut::kOutputs, CutUnit::kHeads},
    {"attn_q.bias", &LayerTensors::attn_q_bias, Cut::kOutputs, CutUnit::kHeads},
    {"attn_k.weight", &LayerTensors::attn_k, Cut::kOutputs, CutUnit::kKvHeads},
    {"attn_k.bias", &LayerTensors::attn_k_bias, Cut::kOutputs,
     CutUnit::kKvHeads},
    {"attn_v.weight", &LayerTensors::attn_v, Cut::kOutputs, CutUnit::kKvHeads},
    {"attn_v.bias", &LayerTensors::attn_v_bias, Cut::kOutputs,
     CutUnit::kKvHeads},
    {"attn_q_norm.weight", &LayerTensors::attn_q_norm, Cut::kWhole,
     CutUnit::kNone},
    {"attn_k_norm.weight", &LayerTensors::attn_k_norm, Cut::kWhole,
     CutUnit::kNone},
    {"attn_sinks.weight", &LayerTensors::attn_sinks, Cut::kOutputs,
     CutUnit::kHeads},
    {"attn_output.weight", &LayerTensors::attn_output, Cut::kInputs,
     CutUnit::kHeads},
    {"attn_output.bias", &LayerTensors::attn_output_bias, Cut::kRankZero,
     CutUnit::kNone},
    {"post_attention_norm.weight", &LayerTensors::post_attention_norm,
     Cut::kWhole, CutUnit::kNone},
    {"ffn_norm.weight", &LayerTensors::ffn_norm, Cut::kWhole, CutUnit::kNone},
    {"ffn_norm.bias", &LayerTensors::ffn_norm_bias, Cut::kWhole,
     CutUnit::kNone},
    {"ffn_gate.weight", &LayerTensors::ffn_gate, Cut::kOutputs, CutUnit::kFfn},
    {"ffn_up.weight", &LayerTensors::ffn_up, Cut::kOutputs, CutUnit::kFfn},
    {"ffn_up.bias", &LayerTensors::ffn_up_bias, Cut::kOutputs, CutUnit::kFfn},
    {"ffn_down.weight", &LayerTensors::ffn_down, Cut::kInputs, CutUnit::kFfn},
    {"ffn_down.bias", &LayerTensors::ffn_down_bias, Cut::kRankZero,
     CutUnit::kNone},
    {"post_ffw_norm.weight", &LayerTensors::post_ffw_norm, Cut::kWhole,
     CutUnit::kNone},
};

int64_t UnitsOf(const ModelConfig& config, CutUnit unit) {
  switch (unit) {
    case CutUnit::kNone:
      return 0;
    case CutUnit::kHeads:
      return config.heads;
    case CutUnit::kKvHeads:
      return config.kv_heads;
    case CutUnit::kFfn:
      return config.ffn;
    case CutUnit::kVocabulary:
      return config.vocab;
  }
  return 0;
}

std::string_view NameOf(CutUnit unit) {
  switch (unit) {
    case CutUnit::kNone:
      return "";
    case CutUnit::kHeads:
      return "heads";
    case CutUnit::kKvHeads:
      return "KV heads";
    case CutUnit::kFfn:
      return "ffn columns";
    case CutUnit::kVocabulary:
      return "tokens";
  }
  return "";
}

// OK, or what does not divide, as the middle of a sentence.
Status CheckDivides(const LlmPlan& whole, int32_t size,
                    std::optional<GgmlType> quantize) {
  const ModelConfig& config = whole.config;
  for (const CutUnit unit :
       {CutUnit::kHeads, CutUnit::kKvHeads, CutUnit::kFfn}) {
    const int64_t units = UnitsOf(config, unit);
    if (units % size == 0) continue;
    return InvalidArgument("the model has " + std::to_string(units) + " " +
                           std::string(NameOf(unit)));
  }
  if (config.vocab / kLogitGroup < size) {
    return InvalidArgument("the vocabulary has " +
                           std::to_string(config.vocab) + " tokens");
  }
  for (const LayerTensors& layer : whole.tensors.layers) {
    for (const LayerCut& cut : kLayerCuts) {
      const FileTensor* tensor = layer.*cut.tensor;
      if (tensor == nullptr || cut.cut != Cut::kInputs) continue;
      GgmlType type = tensor->type;
      if (quantize && tensor->dims[0] % InfoOf(*quantize).block_values == 0) {
        type = *quantize;
      }
      const int64_t block = InfoOf(type).block_values;
      if (tensor->dims[0] / size % block == 0) continue;
      return InvalidArgument("'" + std::string(tensor->name) +
                             "' has rows of " +
                             std::to_string(tensor->dims[0] / block) + " " +
                             std::string(InfoOf(type).name) + " blocks of " +
                             std::to_string(block) + " values");
    }
  }
  return OkStatus();
}

Status CheckKind(const ModelSource& source, const LlmPlan& whole) {
  const ModelConfig& config = whole.config;
  const auto refuse = [&](const std::string& what) {
    return Unimplemented("tensor_parallel_size above 1 is not supported for " +
                         what + "; leave it out")
        .At("tensor_parallel_size");
  };
  if (source.packed() != nullptr) {
    return refuse("files in packed form: use the original file");
  }
  for (const LayerSpec& spec : config.specs) {
    if (spec.experts) return refuse("mixtures of experts");
    if (spec.parallel) {
      return refuse("layers whose attention and feed-forward read one row (" +
                    config.architecture + ")");
    }
    if (spec.qk_norm == QkNorm::kWhole) {
      return refuse("norms over all heads together (" + config.architecture +
                    ")");
    }
  }
  return OkStatus();
}

std::string ListOf(const std::vector<int32_t>& sizes) {
  std::string out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) out += i + 1 == sizes.size() ? " and " : ", ";
    out += std::to_string(sizes[i]);
  }
  return out;
}

const FileTensor* Keep(const FileTensor& part, ModelTensors& out) {
  return out.parts.emplace_back(std::make_shared<const FileTensor>(part)).get();
}

// Outputs [first, first + count): rows of a matrix, values of a vector.
const FileTensor* CutOutputs(const FileTensor& whole, int64_t first,
                             int64_t count, ModelTensors& out) {
  FileTensor part = whole;
  const bool is_vector = whole.num_dims == 1;
  const int64_t bytes =
      is_vector ? InfoOf(whole.type).block_bytes : whole.row_bytes;
  if (is_vector) {
    part.dims = {count, 1, 1, 1};
    part.row_bytes = count * bytes;
    part.num_elements = count;
  } else {
    part.num_dims = 2;
    part.dims = {whole.dims[0], count, 1, 1};
    part.num_elements = whole.dims[0] * count;
  }
  part.data = whole.data.subspan(static_cast<size_t>(first * bytes),
                                 static_cast<size_t>(count * bytes));
  return Keep(part, out);
}

// Inputs [first, first + count) of each row; whole blocks.
const FileTensor* CutInputs(const FileTensor& whole, int64_t first,
                            int64_t count, ModelTensors& out) {
  const GgmlTypeInfo& info = InfoOf(whole.type);
  const int64_t rows = whole.num_elements / whole.dims[0];
  FileTensor part = whole;
  part.num_dims = 2;
  part.dims = {count, rows, 1, 1};
  part.num_elements = count * rows;
  part.data = whole.data.subspan(
      static_cast<size_t>(first / info.block_values * info.block_bytes));
  return Keep(part, out);
}

const FileTensor* CutTensor(const LlmPlan& whole, const LayerCut& cut,
                            const FileTensor& tensor, int32_t rank,
                            int32_t size, ModelTensors& out) {
  switch (cut.cut) {
    case Cut::kWhole:
      return &tensor;
    case Cut::kRankZero:
      return rank == 0 ? &tensor : nullptr;
    case Cut::kOutputs: {
      const int64_t outputs = tensor.num_dims == 1
                                  ? tensor.num_elements
                                  : tensor.num_elements / tensor.dims[0];
      CHECK(outputs % UnitsOf(whole.config, cut.unit) == 0,
            "outputs are whole units");
      return CutOutputs(tensor, outputs / size * rank, outputs / size, out);
    }
    case Cut::kInputs: {
      const int64_t inputs = tensor.dims[0] / size;
      return CutInputs(tensor, inputs * rank, inputs, out);
    }
  }
  return nullptr;
}

}  // namespace

std::string_view NameOf(Cut cut) {
  switch (cut) {
    case Cut::kWhole:
      return "whole";
    case Cut::kOutputs:
      return "outputs";
    case Cut::kInputs:
      return "inputs";
    case Cut::kRankZero:
      return "rank 0 alone";
  }
  return "";
}

std::vector<int32_t> WorkingSizes(const ModelSource& source,
                                  const LlmPlan& whole, int32_t most,
                                  std::optional<GgmlType> quantize) {
  std::vector<int32_t> sizes;
  if (!CheckKind(source, whole).ok()) return sizes;
  for (int32_t size = 2; size <= most; ++size) {
    if (CheckDivides(whole, size, quantize).ok()) sizes.push_back(size);
  }
  return sizes;
}

StatusOr<LlmPlan> ShardOf(const ModelSource& source, const LlmPlan& whole,
                          const ShardOptions& options) {
  const int32_t size = options.size;
  CHECK(size >= 1 && options.rank >= 0 && options.rank < size,
        "a rank of the group");
  RETURN_IF_ERROR(CheckKind(source, whole));
  if (const Status divides = CheckDivides(whole, size, options.quantize);
      !divides.ok()) {
    const std::vector<int32_t> sizes =
        WorkingSizes(source, whole, kMostSize, options.quantize);
    return InvalidArgument(
               "tensor_parallel_size is " + std::to_string(size) + ", but " +
               std::string(divides.message()) +
               (sizes.empty() ? "; no size above 1 divides them, leave it out"
                              : ", which these sizes divide: " + ListOf(sizes)))
        .At("tensor_parallel_size");
  }
  LlmPlan part = whole;
  part.config.heads /= size;
  part.config.kv_heads /= size;
  part.config.ffn /= size;
  ModelTensors& out = part.tensors;
  for (LayerTensors& layer : out.layers) {
    for (const LayerCut& cut : kLayerCuts) {
      const FileTensor*& tensor = layer.*cut.tensor;
      if (tensor == nullptr) continue;
      tensor = CutTensor(whole, cut, *tensor, options.rank, size, out);
    }
  }
  // The embedding is whole, and so is a head that is tied to it: a rank reads
  // its rows of it.
  if (out.output != out.token_embd) {
    const LogitRange logits = LogitsOf(whole.config.vocab, options.rank, size);
    out.output =
        CutOutputs(*out.output, logits.begin, logits.end - logits.begin, out);
  }
  return part;
}

std::vector<const FileTensor*> TensorsOfPart(const LlmPlan& part) {
  const ModelTensors& tensors = part.tensors;
  std::vector<const FileTensor*> all = {
      tensors.token_embd, tensors.position_embd, tensors.output_norm,
      tensors.output_norm_bias};
  if (tensors.output != tensors.token_embd) all.push_back(tensors.output);
  for (const LayerTensors& layer : tensors.layers) {
    for (const LayerCut& cut : kLayerCuts) all.push_back(layer.*cut.tensor);
  }
  std::erase(all, nullptr);
  return all;
}

std::vector<TensorCut> ShardingTable(const LlmPlan& whole, int32_t size) {
  std::vector<TensorCut> lines;
  const auto add = [&](std::string_view name, Cut cut, CutUnit unit) {
    const int64_t units = UnitsOf(whole.config, unit);
    lines.push_back({.tensor = std::string(name),
                     .cut = std::string(NameOf(cut)),
                     .unit = std::string(NameOf(unit)),
                     .of_all = units,
                     .of_rank = units / size});
  };
  add("token_embd.weight", Cut::kWhole, CutUnit::kNone);
  if (whole.tensors.position_embd != nullptr) {
    add("position_embd.weight", Cut::kWhole, CutUnit::kNone);
  }
  for (const LayerCut& cut : kLayerCuts) {
    // Layers differ in what they have.
    const bool any = std::ranges::any_of(whole.tensors.layers,
                                         [&](const LayerTensors& layer) {
                                           return layer.*cut.tensor != nullptr;
                                         });
    if (any) add("blk.*." + std::string(cut.name), cut.cut, cut.unit);
  }
  add("output_norm.weight", Cut::kWhole, CutUnit::kNone);
  const bool tied = whole.tensors.output == whole.tensors.token_embd;
  add(tied ? "output (token_embd.weight)" : "output.weight", Cut::kOutputs,
      CutUnit::kVocabulary);
  return lines;
}

}  // namespace millrace::models
